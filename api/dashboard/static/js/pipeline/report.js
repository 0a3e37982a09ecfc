// The report of a pipeline: the answer above everything, how it was found below.

import { el, show } from "../dom.js";
import { duration, signed, whole } from "../format.js";
import { downloads, facts } from "../parts.js";
import { measured, scoreTable } from "../scores.js";
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
    { label: "By the clock", num: true, cell: (one) => (one.seconds == null ? "under way" : duration(1000 * one.seconds)) },
    { label: "Parts, added up", num: true, cell: (one) => (one.work_seconds ? duration(1000 * one.work_seconds) : "–") },
  ];
  return plainTable(columns, stages, "How long each stage took");
}

