// The table of scores of a report: measured models and their shares first, then published ones,
// marked as such.

import { address, get } from "./api.js";
import { el, problem, show } from "./dom.js";
import { fixed, percent, whole } from "./format.js";

const FORMATS = { md: "Markdown", csv: "CSV", tex: "LaTeX" };
const OTHER_SPLIT = "not the official split";

/** Read the report of a model over a suite and show it; `against` may be empty. */
export async function showScores(place, { model, suite, against = [] }, heading = null) {
  const query = { model, suite, against };
  try {
    const report = await get("/evaluations/report", query);
    show(place, heading && el("h3", {}, heading), scoreTable(report), ...below(report, query));
  } catch (error) {
    show(place, problem(error, () => showScores(place, { model, suite, against }, heading)));
  }
}

function scoreTable(report) {
  const heads = ["Model", ...report.columns.map((column) => column + (isOurSplit(report, column) ? " *" : ""))];
  const published = report.rows.filter((row) => row.origin === "published");
  const measured = report.rows.filter((row) => row.origin !== "published");
  const caption = `Scores over ${report.suite}, in per cent`;
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el(
      "table",
      { class: "scores" },
      el("caption", { class: "visually-hidden" }, caption),
      el("thead", {}, el("tr", {}, heads.map((text, i) => el("th", { scope: "col", class: i > 0 && "num" }, text)))),
      el(
        "tbody",
        {},
        measured.map((row) => scoreRow(row, report.columns)),
        report.against.map((a) => shareRow(a, report.columns)),
        published.map((row) => scoreRow(row, report.columns)),
      ),
    ),
  );
}

function scoreRow(row, columns) {
  const isPublished = row.origin === "published";
  const origin = isPublished
    ? el("div", { class: "muted" }, ["published", row.method, row.about].filter(Boolean).join(" · "))
    : null;
  return el(
    "tr",
    { "data-origin": row.origin },
    el("th", { scope: "row", class: "wrap" }, row.model, origin),
    columns.map((column) => el("td", { class: "num" }, score(row.scores[column]))),
  );
}

function score(cell) {
  if (!cell) return "–";
  return fixed(100 * cell.mean, 1) + (cell.deviation == null ? "" : ` ± ${fixed(100 * cell.deviation, 1)}`);
}

function shareRow({ other, retained }, columns) {
  return el(
    "tr",
    { "data-origin": "share" },
    el("th", { scope: "row", class: "wrap" }, `Share of ${other}`),
    columns.map((column) => el("td", { class: "num" }, percent(retained[column], 1))),
  );
}

const isOurSplit = ({ notes }, column) =>
  notes.some((note) => note.startsWith(`${column}: `) && note.includes(OTHER_SPLIT));

function difference(task, other, { difference, low, high, p_value, examples }) {
  const [mean, from, to] = [difference, low, high].map((value) => `${value > 0 ? "+" : ""}${fixed(100 * value, 1)}`);
  return `${task}: ${mean} points against ${other}, 95 % interval ${from} to ${to}, p = ${p_value.toPrecision(2)} (paired bootstrap, ${whole(examples)} examples)`;
}

function below(report, query) {
  const links = Object.entries(FORMATS).flatMap(([format, name], i) => [
    i ? " · " : "",
    el("a", { href: address("/evaluations/report", { ...query, format }), download: `evaluation-${report.suite}.${format}` }, name),
  ]);
  const tests = report.against.flatMap(({ other, bootstrap }) =>
    Object.entries(bootstrap).map(([task, test]) => el("li", {}, difference(task, other, test))),
  );
  const notes = report.notes.map((note) => el("li", {}, note.includes(OTHER_SPLIT) ? `* ${note}` : note));
  return [
    tests.length || notes.length ? el("ul", { class: "notes list" }, tests, notes) : null,
    el("p", { class: "notes" }, "Per cent, mean ± deviation over seeds; published rows are the papers' own. ", ...links),
  ];
}
