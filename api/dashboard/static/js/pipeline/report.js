// The report of a pipeline: the answer above everything, how it was found below.

import { el, show } from "../dom.js";
import { duration, fixed, percent, signed, whole } from "../format.js";
import { downloads, facts } from "../parts.js";
import { measured, score, scoreTable } from "../scores.js";
import { plainTable } from "../table.js";
import { ROLES } from "./members.js";

const FORMATS = { md: "Markdown", csv: "CSV", tex: "LaTeX", json: "JSON" };

/** Show the answer; nothing is shown before there is a score. */
export function showAnswer(place, report) {
  place.hidden = !report.picks.length;
  show(place, el("p", { class: "headline" }, report.headline), listed(report.findings));
}

/** Show all the rest of a report. */
export function showReport(place, report) {
  const roles = new Map(report.models.map((line) => [line.name, ROLES[line.role]]));
  show(
    place,
    report.picks.length ? null : el("p", {}, report.headline),
    report.failures.length ? failures(report) : null,
    ...part("Scores", scores(report)),
    ...part("How sure the differences are", differences(report, roles)),
    ...part("What the second step brings", secondSteps(report)),
    ...part("How it was made", facts(Object.entries(report.setup), true)),
    ...part("How long it took", times(report)),
    ...part("Notes", listed(report.notes)),
    el("p", { class: "notes" }, "Download the report: ", ...downloads(FORMATS, `/pipelines/${report.id}/report`, {}, report.name)),
  );
}

const part = (title, content) => (content ? [el("h3", {}, title), ...[content].flat()] : []);
const listed = (lines) => (lines.length ? el("ul", { class: "findings" }, lines.map((line) => el("li", {}, line))) : null);

function failures({ failures: failed, remedy }) {
  return el(
    "div",
    { class: "notice bad", role: "alert" },
    el("ul", { class: "findings" }, failed.map(({ part: what, error }) => el("li", {}, el("strong", {}, what), `: ${error}`))),
    remedy ? el("p", {}, remedy) : null,
  );
}

function scores({ columns, models, published, notes, name }) {
  const rows = models
    .filter((line) => Object.keys(line.scores).length)
    .map((line) => ({ model: line.name, origin: "measured", method: "", about: "", scores: line.scores }));
  if (!rows.length) return null;
  const papers = published.map((row) => ({ ...row, scores: row.cells }));
  return [
    scoreTable({ suite: name, columns, rows: [...rows, ...papers], against: [], notes }),
    el("p", { class: "notes" }, "Per cent, mean ± deviation over seeds; published rows are the papers' own."),
  ];
}

function differences({ beside }, roles) {
  if (!beside.length) return null;
  const columns = [
    { label: "Student", cell: (one) => one.model },
    { label: "Beside", cell: (one) => one.other },
    { label: "Role", cell: (one) => roles.get(one.other) },
    { label: "Points", num: true, cell: (one) => signed(one.difference.value) },
    { label: "95 % interval", num: true, cell: ({ difference: d }) => (d.low == null ? "–" : `${signed(d.low)} to ${signed(d.high)}`) },
    { label: "Drawn over", cell: (one) => one.difference.over ?? "–" },
    { label: "The student is", cell: (one) => el("span", { class: "verdict", "data-verdict": one.verdict }, one.verdict) },
  ];
  const tests = beside.flatMap(({ model, other, tests: byTask }) =>
    Object.entries(byTask).map(([task, test]) => ({ model, other, task, ...test })),
  );
  return [
    plainTable(columns, beside, "The students to take beside the other models"),
    tests.length
      ? el("details", {}, el("summary", {}, "Task by task"), plainTable(TESTS, tests, "Paired bootstrap of each task"))
      : null,
  ];
}

const share = (one) => (one ? `${percent(one.value, 1)}${one.low == null ? "" : ` (${fixed(100 * one.low, 1)} to ${fixed(100 * one.high, 1)})`}` : "–");

function secondSteps({ second_steps: steps }) {
  if (!steps.length) return null;
  const columns = [
    { label: "Student", cell: (one) => one.name },
    { label: "Task", cell: (one) => (one.job ? el("a", { href: `/task-distillations/${one.job}` }, one.task) : one.task) },
    { label: "Fine-tuned", num: true, cell: (one) => score(one.before) },
    { label: "Retained before", num: true, cell: (one) => share(one.retained_before) },
    { label: "Distilled for it", num: true, cell: (one) => (one.after ? score(one.after) : (one.status ?? "–")) },
    { label: "Retained after", num: true, cell: (one) => share(one.retained_after) },
    { label: "Points", num: true, cell: ({ gained: g }) => (g ? signed(g.value) : "–") },
    { label: "95 % interval", num: true, cell: ({ gained: g }) => (g?.low == null ? "–" : `${signed(g.low)} to ${signed(g.high)}`) },
    { label: "Drawn over", cell: (one) => one.gained?.over ?? "–" },
    { label: "The second step is", cell: (one) => (one.gained ? el("span", { class: "verdict", "data-verdict": one.verdict }, one.verdict) : "–") },
  ];
  return [
    plainTable(columns, steps, "Students before and after the second step"),
    el("p", { class: "notes" }, "Per cent: the student fine-tuned on the task as all models are, and distilled once more for it, each with its share of the teacher's score."),
  ];
}

const TESTS = [
  { label: "Task", cell: (one) => one.task },
  { label: "Student", cell: (one) => one.model },
  { label: "Beside", cell: (one) => one.other },
  { label: "Points of", cell: measured },
  { label: "Points", num: true, cell: (one) => signed(one.difference) },
  { label: "95 % interval", num: true, cell: (one) => `${signed(one.low)} to ${signed(one.high)}` },
  { label: "p", num: true, cell: (one) => one.p_value.toPrecision(2) },
  { label: "Examples", num: true, cell: (one) => whole(one.examples) },
];

function times({ stages }) {
  if (!stages.length) return null;
  const columns = [
    { label: "Stage", cell: (one) => one.stage },
    { label: "By the clock", num: true, cell: (one) => (one.seconds == null ? (one.finished_at ? "–" : "under way") : duration(1000 * one.seconds)) },
    { label: "Parts, added up", num: true, cell: (one) => (one.work_seconds ? duration(1000 * one.work_seconds) : "–") },
  ];
  return plainTable(columns, stages, "How long each stage took");
}

