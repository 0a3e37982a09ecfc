// Distillations for a task: how far they are, their scores, their curves, and what students attend to.

import { get, getAll, tried } from "../api.js";
import { Chart, colour, curve } from "../charts.js";
import { byId, el, nothing, problem, show, throttled } from "../dom.js";
import { capital, fixed, millions, moment, plural, whole } from "../format.js";
import { jobFrame, showHead } from "../job.js";
import { bar, facts, failed, tiles } from "../parts.js";
import { Attention } from "../task/attention.js";
import { curvesChart, drawnOf } from "../task/curves.js";
import { gridTable, methodTable, publishedTable, runTable } from "../task/report.js";

const RESULTS_MS = 3000;
const ALL = "all methods";
const reference = document.body.dataset.subject;
const path = `/task-distillations/${encodeURIComponent(reference)}`;
const choice = byId("curve-filters").querySelector("[data-curves]");
const attention = new Attention(byId("attention"));
let job = null;
let report = null;
let runs = [];

const points = (score) => fixed(score == null ? null : 100 * score, 1);

const layers = new Chart(byId("layers"), ({ facts: found }) => {
  if (!found) return { empty: "The teacher has not learned the task yet." };
  const x = found.layers.map(({ layer }) => layer);
  const line = (name, key, looks) =>
    curve(name, x, found.layers.map((one) => (one[key] === null ? null : 100 * one[key])), looks, {
      mode: "lines+markers", marker: { size: 6 }, hovertemplate: `layer %{x}: %{y:.1f}<extra>${name}</extra>`,
    });
  const own = found.teacher.held_out;
  return {
    traces: [
      line("held out", "held_out", { color: colour("series-1") }),
      line("reported", "main", { color: colour("series-3") }),
      ...(own === null ? [] : [curve("the teacher, held out", [x[0], x.at(-1)], [100 * own, 100 * own], { color: colour("series-dim"), width: 1, dash: "dot" }, { hovertemplate: "%{y:.1f}<extra>the teacher</extra>" })]),
    ],
    layout: { xaxis: { title: { text: "layer of the teacher" }, dtick: 1 }, yaxis: { title: { text: `${found.metric} (per cent)` } } },
    label: `Scores of the pseudo-classifiers on ${plural(x.length, "layer")} of the teacher; the last one reaches ${points(found.layers.at(-1).held_out)} held out`,
  };
});

const heldOut = new Chart(byId("held-out"), ({ drawn }) => curvesChart(drawn, "held_out", { axis: "held-out score (per cent)", scale: 100, digits: 1 }));
const losses = new Chart(byId("losses"), ({ drawn }) => curvesChart(drawn, "loss", { axis: "training loss", broken: true }));

function showSummary() {
  const { total, facts: found } = job;
  const done = job.done ?? 0;
  const begun = job.started_at ? `started ${moment(job.started_at)}` : `asked for ${moment(job.created_at)}`;
  // Chosen by what is held out, as students are: what is reported chooses nothing.
  const best = report?.rows.reduce((top, row) => (row.held_out !== null && (top === null || row.held_out > top.held_out) ? row : top), null);
  showHead(
    job,
    { path, about: `${found?.task ?? job.task} · ${job.student} · ${begun}`, changed: readState },
    el("div", { class: "progress-row" }, el("span", {}, total ? `${whole(done)} of ${plural(total, "run")}` : "Not begun yet")),
    bar(total ? done / total : 0, "Progress of the distillations"),
    job.warnings.map((text) => el("p", { class: "notice" }, text)),
    tiles([
      ["Task", found?.task ?? job.task],
      ["Teacher", points(found?.teacher.held_out), el("small", {}, [found && ` held out, ${points(found.teacher.main)} reported`, job.teacher].filter(Boolean).join(" · "))],
      ["Best held out", points(best?.held_out), el("small", {}, best ? ` ${best.method}: ${points(best.mean)} reported` : "")],
      ["Student", found ? millions(found.student.parameters / 1e6) : "–", el("small", {}, " parameters")],
      [job.seeds.length > 1 ? "Seeds" : "Seed", job.seeds.join(", ")],
    ]),
  );
}

function showFacts() {
  const { facts: found } = job;
  const place = byId("found").querySelector("[data-facts]");
  if (!found) {
    show(place, nothing("It was not prepared yet."));
    return;
  }
  const { teacher, student, settings } = found;
  show(
    place,
    facts(
      [
        ["Task", `${found.kind}, by ${found.metric}`],
        ...(found.labels.length ? [["Labels", found.labels.join(", ")]] : []),
        ["Examples", Object.entries(found.examples).map(([part, count]) => `${whole(count)} ${part}`).join(", ")],
        ["Teacher", `${teacher.ref}, ${plural(teacher.layers, "layer")}, ${teacher.tuned ? "fine-tuned for it here" : "as it was given"}: ${points(teacher.main)}, held out ${points(teacher.held_out)}`],
        ["Student", `${student.name}: ${student.start}`],
        ["Parameters", `${millions(student.parameters / 1e6)}, ${millions(student.trainable / 1e6)} of them learned`],
        ["Settings", Object.entries(settings).filter(([, value]) => value !== null).map(([key, value]) => `${key.replaceAll("_", " ")} ${value}`).join(", ")],
      ],
      true,
    ),
  );
}

function showGrids() {
  const place = byId("grids");
  place.hidden = job.grids.length === 0;
  show(place.querySelector("[data-trials]"), job.grids.map(gridTable));
}

function showSpec() {
  show(
    byId("spec"),
    facts([["Teacher", job.teacher ?? "–"], ["Student", job.student], ["Methods", job.methods.join(", ")], ["Seeds", job.seeds.join(", ")], ...(job.output ? [["Folder", job.output]] : [])], true),
    el("details", {}, el("summary", {}, "All of it"), el("pre", { class: "scroll" }, JSON.stringify(job.spec, null, 2))),
  );
}

function showReport() {
  const place = byId("scores");
  place.querySelector("[data-about]").textContent = `${capital(report.metric ?? "score")} in per cent, mean ± deviation over seeds.`;
  const students = report.rows.filter(({ student }) => student);
  show(
    place.querySelector("[data-scores]"),
    methodTable(report),
    runTable(report),
    report.notes.length ? el("ul", { class: "notes list" }, report.notes.map((note) => el("li", {}, note))) : null,
    students.length ? el("details", {}, el("summary", {}, "Where the students are"), facts(students.map(({ method, best_seed: seed, student }) => [method, el("code", {}, student), ` seed ${seed}, the best held out`]), true)) : null,
  );
  const beside = byId("published");
  beside.hidden = report.published.length === 0;
  if (beside.hidden) return;
  beside.querySelector("[data-about]").textContent = `Of students of other teachers on ${report.task}, by Wu et al. (2021), Tables 2 to 6; those on test sets are of other examples than ours.`;
  show(beside.querySelector("[data-published]"), publishedTable(report));
}

async function showCurves() {
  const chosen = choice.value;
  const names = [...new Set(runs.filter((run) => run.curve.length).map((run) => run.method))];
  show(choice, [ALL, ...names].map((name) => el("option", { selected: name === chosen }, name)));
  const drawn = drawnOf(runs, choice.value === ALL ? null : choice.value);
  await Promise.all([heldOut.update({ drawn }), losses.update({ drawn })]);
}

async function readResults() {
  [report, runs] = await Promise.all([get(`${path}/report`), getAll(`${path}/runs`)]);
  showSummary();
  showReport();
  attention.update(runs);
  await showCurves();
}

const renewResults = throttled(() => tried(readResults, (error) => show(byId("scores").querySelector("[data-scores]"), problem(error, renewResults))), RESULTS_MS);

async function read() {
  job = await get(path);
  byId("problem").replaceChildren();
  showSummary();
  showFacts();
  showGrids();
  showSpec();
  await layers.update(job);
}

function gone(error) {
  failed(error);
  byId("summary").replaceChildren();
  for (const chart of [layers, heldOut, losses]) chart.fail(error);
}

choice.addEventListener("change", showCurves);
const readState = throttled(() => tried(read, gone), 1000);
const watch = jobFrame(reference, readState);

function renew() {
  readState();
  renewResults();
}

await tried(async () => {
  await read();
  await readResults();
}, gone);
watch(
  job?.id ?? reference,
  ({ type }) => (type === "task_distillation_progress" ? null : type === "task_distillation_preparing" ? readState() : renew()),
  renew,
);
