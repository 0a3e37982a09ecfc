// The table of scores of a report: measured models and their shares first, then published ones,
// marked as such.

import { address, get } from "./api.js";
import { el, nothing, problem, show } from "./dom.js";
import { fixed, percent, plural, signed, whole } from "./format.js";
import { downloads } from "./parts.js";
import { plainTable } from "./table.js";

const FORMATS = { md: "Markdown", csv: "CSV", tex: "LaTeX" };
const RUNTIMES = { pytorch: "PyTorch", "onnx-int8": "ONNX int8" };
const OTHER_SPLIT = "not the official split";

const asked = new WeakMap(); // place → what it was asked to show last

/** Read the report of a model over a suite and show it; `against` may be empty. */
export async function showScores(place, { model, suite, against = [] }, heading = null) {
  const query = { model, suite, against };
  asked.set(place, query);
  try {
    const report = await get("/evaluations/report", query);
    if (asked.get(place) !== query) return; // a later question is under way
    show(place, heading && el("h3", {}, heading), scoreTable(report), figuresTable(report), classes(query), ...below(report, query));
  } catch (error) {
    if (asked.get(place) !== query) return;
    show(place, problem(error, () => showScores(place, { model, suite, against }, heading)));
  }
}

/** Show something else in place of scores; those under way stay away. */
export function showNoScores(place, ...children) {
  asked.delete(place);
  show(place, ...children);
}

/** The table of a report: `suite`, `columns`, `rows`, `against` and `notes`. */
export function scoreTable(report) {
  const columns = report.columns.map((column) => ({
    label: column + (isOurSplit(report, column) ? " *" : ""), num: true,
    cell: (row) => (row.retained ? percent(row.retained[column], 1) : score(row.scores[column])),
  }));
  const isPublished = (row) => row.origin === "published";
  const shares = report.against.map(({ other, retained }) => ({ origin: "share", model: `Share of ${other}`, retained }));
  const rows = [...report.rows.filter((row) => !isPublished(row)), ...shares, ...report.rows.filter(isPublished)];
  return plainTable(
    [{ label: "Model", head: true, wrap: true, cell: (row) => [row.model, isPublished(row) ? originOf(row) : null] }, ...columns],
    rows,
    `Scores over ${report.suite}, in per cent`,
    { name: "scores", attributes: ({ origin }) => ({ "data-origin": origin }) },
  );
}

const originOf = (row) => el("div", { class: "muted" }, ["published", row.method, row.about].filter(Boolean).join(" · "));

/** A mean over seeds, in per cent, with its deviation. */
export function score(cell) {
  if (!cell) return "–";
  return fixed(100 * cell.mean, 1) + (cell.deviation == null ? "" : ` ± ${fixed(100 * cell.deviation, 1)}`);
}

/** Sizes and speeds of the measured models; nothing where none are known. */
function figuresTable(report) {
  const rows = report.rows.filter((row) => row.figures);
  if (!rows.length) return null;
  const others = report.against.filter((a) => a.speed_up != null).map(({ other }) => rows.find((row) => row.model === other));
  const million = (value, unit) => (value == null ? "–" : `${fixed(value / 1e6, 1)} ${unit}`);
  const column = (label, cell) => ({ label, num: true, cell: ({ figures }) => cell(figures) });
  return plainTable(
    [
      { label: "Model", head: true, wrap: true, cell: ({ model }) => model },
      column("Parameters", (figures) => million(figures.parameters, "M")),
      column("On disk", (figures) => million(figures.disk_bytes, "MB")),
      column("Latency", (figures) => (figures.latency_ms == null ? "–" : `${fixed(figures.latency_ms, 2)} ms`)),
      column("Runtime", (figures) => RUNTIMES[figures.runtime] ?? figures.runtime),
      ...others.map((other) => column(`Speed-up over ${other.model}`, (figures) => speedUp(figures, other.figures))),
    ],
    rows,
    "Size and speed",
    { name: "figures" },
  );
}

function speedUp(one, other) {
  const alike = ["device", "length", "threads"].every((key) => one[key] === other[key]);
  return alike && one.latency_ms && other.latency_ms ? `${fixed(other.latency_ms / one.latency_ms, 2)}×` : "–";
}

function timedHow(report) {
  const figures = report.rows.map((row) => row.figures).find((it) => it?.latency_ms != null);
  if (!figures) return "";
  const device = figures.device.replace(/^[^:]*:/, "");
  return `Latency: median of one sequence of ${plural(figures.length, "token")}, ${plural(figures.threads, "thread")}, ${device}. `;
}

const isOurSplit = ({ notes }, column) =>
  notes.some((note) => note.startsWith(`${column}: `) && note.includes(OTHER_SPLIT));

// What the models are compared by: the task's metric, or what each example scores.
const METRICS = { f1: "F1", matthews: "Matthews", pearson: "Pearson", spearman: "Spearman" };
export const measured = ({ metric }) => (metric === null ? "an example" : (METRICS[metric] ?? metric.replace("_at_", "@")));

function difference(task, other, { metric, difference, low, high, p_value, examples }) {
  const [mean, from, to] = [difference, low, high].map(signed);
  return `${task}, ${measured({ metric })}: ${mean} points against ${other}, 95 % interval ${from} to ${to}, p = ${p_value.toPrecision(2)} (paired bootstrap, ${whole(examples)} examples)`;
}

/** Precision and recall of each class, and what is taken for what; read when somebody opens it. */
function classes({ model, suite }) {
  const place = el("div");
  let read = false;
  const load = async () => {
    read = true;
    show(place, el("div", { class: "skeleton" }));
    try {
      const { items } = await get("/evaluations/classes", { model, suite });
      const none = "No task here has classes, or what was said of each example lies on another machine.";
      show(place, items.length ? items.flatMap((item) => classTables(item, { model, suite })) : nothing(none));
    } catch (error) {
      show(place, problem(error, load));
    }
  };
  const ontoggle = (event) => event.target.open && !read && load();
  return el("details", { "data-name": `classes ${model} ${suite}`, ontoggle }, el("summary", {}, "Class by class"), place);
}

function classTables({ task, set, seeds, classes: rows, confusion }, query) {
  const share = (label, key) => ({ label, num: true, cell: (row) => fixed(100 * row[key], 1) });
  const what = `${task}, ${set}`;
  const scores = plainTable(
    [
      { label: "Class", head: true, wrap: true, cell: ({ label }) => label },
      share("Precision", "precision"),
      share("Recall", "recall"),
      share("F1", "f1"),
      { label: "Support", num: true, cell: ({ support }) => whole(support) },
    ],
    rows,
    `Classes of ${what}, in per cent, ${plural(seeds.length, "seed")} together`,
    { name: "classes" },
  );
  const said = seeds.flatMap((seed, i) => [
    i ? " · " : "",
    el("a", { href: address("/evaluations/predictions", { ...query, task, seed }), download: true }, `seed ${seed}`),
  ]);
  return [
    el("h4", {}, what),
    scores,
    confusion && confusionTable(what, confusion),
    el("p", { class: "notes" }, "What was said of each example: ", ...said),
  ];
}

function confusionTable(what, { labels, counts }) {
  const rows = labels.map((label, place) => ({ label, counts: counts[place] }));
  const columns = labels.map((label, place) => ({ label, num: true, cell: ({ counts: row }) => whole(row[place]) }));
  return plainTable(
    [{ label: "Right ↓ said →", head: true, wrap: true, cell: ({ label }) => label }, ...columns],
    rows,
    `How often each class of ${what}, a row, was taken for each, a column`,
    { name: "confusion" },
  );
}

function below(report, query) {
  const links = downloads(FORMATS, "/evaluations/report", query, `evaluation-${report.suite}`);
  const tests = report.against.flatMap(({ other, bootstrap }) =>
    Object.entries(bootstrap).map(([task, test]) => el("li", {}, difference(task, other, test))),
  );
  const notes = report.notes.map((note) => el("li", {}, note.includes(OTHER_SPLIT) ? `* ${note}` : note));
  return [
    tests.length || notes.length ? el("ul", { class: "notes list" }, tests, notes) : null,
    el("p", { class: "notes" }, "Per cent, mean ± deviation over seeds; published rows are the papers' own. ", timedHow(report), ...links),
  ];
}
