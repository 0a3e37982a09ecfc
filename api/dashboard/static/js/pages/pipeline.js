// The page of a pipeline: its models fill as they are distilled and scored, the report below.

import { get, tried } from "../api.js";
import { byId, el, problem, show, throttled } from "../dom.js";
import { duration, moment } from "../format.js";
import { jobFrame, showHead } from "../job.js";
import { showMembers } from "../pipeline/members.js";
import { showAnswer, showReport } from "../pipeline/report.js";
import { stageBar } from "../pipeline/stages.js";
import { tradeoffChart } from "../pipeline/tradeoff.js";

const reference = document.body.dataset.subject;
const path = `/pipelines/${encodeURIComponent(reference)}`;
const members = byId("members").querySelector("[data-members]");
const details = byId("report").querySelector("[data-report]");
const tradeoff = tradeoffChart(byId("tradeoff"));
const NEVER_LOGGED = ["attempts_started", "candidate_finished", "episode_started", "distillation_progress", "task_distillation_progress"];
const CHANGING_SCORES = ["evaluation_status", "evaluation_created", "distillation_status", "task_distillation_run", "task_distillation_status", "pipeline_status", "pipeline_members", "search_status"];
const REPORT_MS = 4000;

let shown = null; // the pipeline as it was read last
let report = null;

/** Which part of the pipeline an event is about, in words. */
function about(event) {
  if (event.type.startsWith("evaluation")) return `${event.payload.model?.split("/").at(-1) ?? ""}: `;
  if (event.type.startsWith("distillation")) {
    const made = shown?.members.find((m) => m.distillation?.id === event.job_id)?.distillation;
    return `Distillation${made ? ` ${made.name}` : ""}: `;
  }
  if (event.type.startsWith("task_distillation")) {
    const steps = shown?.members.flatMap((m) => m.task_distillations) ?? [];
    const name = steps.find(({ id }) => id === event.job_id)?.name;
    return `Distillation for a task${name ? ` ${name}` : ""}: `;
  }
  return event.type.startsWith("search") || event.type.startsWith("episode") ? "Search: " : "";
}

function showSummary(it) {
  const { teacher, corpus } = it.spec.search;
  const about = `${teacher.ref} · ${corpus.source.join(", ")} · ${it.spec.evaluation.suite} · ${timeOf(it)}`;
  showHead(
    it,
    { path, about, changed: readState },
    stageBar(it, report?.stages ?? []),
    it.notes.length ? el("ul", { class: "notes list" }, it.notes.map((note) => el("li", {}, note))) : null,
  );
}

function timeOf({ created_at: created, started_at: started, finished_at: finished }) {
  if (!started) return `asked for ${moment(created)}`;
  const took = finished ? `, took ${duration(new Date(finished) - new Date(started))}` : "";
  return `started ${moment(started)}${took}`;
}

let isThere = true;

function showAll() {
  showSummary(shown);
  showMembers(members, shown, report);
}

async function read() {
  shown = await get(path);
  byId("problem").replaceChildren();
  showAll();
}

function failed(error) {
  show(byId("problem"), problem(error, readState));
  if (shown) return; // what is shown stays
  byId("summary").replaceChildren();
  isThere = error.status !== 404;
  if (isThere) return; // it may be read the next time
  for (const id of ["answer", "members", "tradeoff", "report", "log"]) byId(id).hidden = true;
}

async function readReport() {
  report = await get(`${path}/report`);
  if (shown) showAll();
  showAnswer(byId("answer"), report);
  showReport(details, report);
  byId("tradeoff").hidden = !report.models.some((line) => line.score);
  await tradeoff.update(report);
}

function failedReport(error) {
  if (error.status === 404) return; // the page says so already
  show(details, problem(error, renewReport));
  tradeoff.fail(error);
}

const readState = throttled(() => tried(read, failed), 1500);
const watch = jobFrame(reference, readState, { about, isLogged: ({ type }) => !NEVER_LOGGED.includes(type) });
const renewReport = throttled(() => tried(readReport, failedReport), REPORT_MS);

function renew() {
  readState();
  renewReport();
}

function happened(event) {
  readState();
  if (CHANGING_SCORES.includes(event.type)) renewReport();
}

await tried(read, failed);
if (isThere) {
  renewReport();
  watch(shown?.id ?? reference, happened, renew);
}
