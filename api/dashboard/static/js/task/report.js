// The report of distillations for a task as tables; scores are shown in per cent.

import { el } from "../dom.js";
import { duration, fixed, percent, signed, whole } from "../format.js";
import { plainTable } from "../table.js";

const points = (score) => fixed(score === null ? null : 100 * score, 1);
const probability = (p) => (p < 0.001 ? "<\u202f0.001" : fixed(p, 3));

function meanOf({ mean, deviation }) {
  return points(mean) + (deviation === null ? "" : ` ± ${points(deviation)}`);
}

function differenceOf({ against }) {
  if (!against) return "–";
  return [signed(against.difference), el("span", { class: "muted" }, ` ${signed(against.low)} … ${signed(against.high)}`)];
}

/** A row for each method: its mean over seeds, how sure that is, and how it stands to another. */
export function methodTable(report) {
  const { against } = report;
  const compared = [
    { label: `To ${against}`, num: true, help: "Difference in points with its 95 % interval: a paired bootstrap over the examples", cell: differenceOf },
    { label: "p", num: true, help: "Two-sided, of the same bootstrap", cell: (row) => (row.against ? probability(row.against.p_value) : "–") },
  ];
  const columns = [
    { label: "Method", head: true, cell: ({ method }) => method },
    { label: "Seeds", num: true, cell: (row) => `${row.num_succeeded} / ${row.planned}` },
    { label: "Score", num: true, help: "Mean ± deviation over the seeds", cell: meanOf },
    { label: "95 % interval", num: true, help: "Of the mean over the seeds; of a single seed, over the examples", cell: ({ low, high }) => (low === null ? "–" : `${points(low)} … ${points(high)}`) },
    { label: "Held out", num: true, help: "What everything was chosen by", cell: ({ held_out: score }) => points(score) },
    { label: "Of the teacher's", num: true, cell: ({ retained }) => percent(retained, 1) },
    ...(against ? compared : []),
  ];
  return plainTable(columns, report.rows, "Scores by method, in per cent");
}

/** A row for each run. */
export function runTable(report) {
  const rows = report.rows.flatMap(({ method, seeds }) => seeds.map((seed) => ({ method, ...seed })));
  if (!rows.length) return null;
  const chosen = (key) => ({ chosen: { [key]: value } }) => (value == null ? "–" : String(value));
  const columns = [
    { label: "Method", head: true, cell: ({ method }) => method },
    { label: "Seed", num: true, cell: ({ seed }) => String(seed) },
    { label: "Score", num: true, cell: ({ main, error }) => (error ? el("span", { class: "chip", "data-status": "failed", title: error }, "failed") : points(main)) },
    { label: "Held out", num: true, cell: ({ held_out: score }) => points(score) },
    { label: "Taken from", cell: ({ chosen: { stage, epoch } }) => (stage ? `stage ${stage}, epoch ${epoch}` : "–") },
    { label: "Batch", num: true, cell: chosen("batch_size") },
    { label: "Rate", num: true, cell: chosen("learning_rate") },
    { label: "β", num: true, cell: chosen("beta") },
    { label: "Steps", num: true, cell: ({ steps, error }) => (error ? "–" : whole(steps)) },
    { label: "Time", num: true, cell: ({ seconds, error }) => (error ? "–" : duration(1000 * seconds)) },
  ];
  return el("details", {}, el("summary", {}, "Every run"), plainTable(columns, rows, "Scores of every run"));
}

/** The trials of a method's grid, best first, with the one that was taken. */
export function gridTable({ method, points: planned, trials, chosen }) {
  const taken = (trial) => chosen && ["batch_size", "learning_rate", "beta"].every((key) => trial[key] === chosen[key]);
  const best = (trial) => trial.held_out ?? -Infinity;
  const columns = [
    { label: "Batch", num: true, head: true, cell: ({ batch_size: size }) => String(size) },
    { label: "Rate", num: true, cell: ({ learning_rate: rate }) => String(rate) },
    { label: "β", num: true, cell: ({ beta }) => (beta === null ? "–" : String(beta)) },
    { label: "Held out", num: true, cell: (trial) => (trial.ending === "diverged" ? el("span", { class: "chip", "data-status": "failed" }, "diverged") : points(trial.held_out)) },
    { label: "", cell: (trial) => (taken(trial) ? el("span", { class: "chip", "data-status": "succeeded" }, "taken") : "") },
  ];
  const rows = [...trials].sort((one, other) => best(other) - best(one));
  const about = `${method}: ${trials.length} of ${planned} trials`;
  return el("details", { open: !chosen, "data-name": method }, el("summary", {}, about), trials.length ? plainTable(columns, rows, about) : null);
}

/** Published scores in the columns of their tables, with ours in the first one. */
export function publishedTable(report) {
  const { published } = report;
  const columns = [];
  for (const row of published.filter(({ ours }) => ours)) {
    const key = `${row.table} ${row.split} ${row.model}`;
    if (!columns.some((column) => column.key === key)) columns.push({ key, table: row.table, split: row.split, model: row.model });
  }
  const own = new Map(report.rows.map(({ method, mean }) => [method, mean]));
  const names = ["teacher", ...new Set([...own.keys(), ...published.map(({ ours }) => ours).filter(Boolean)])];
  const find = (name, column) =>
    published.find((row) => row.table === column.table && (name === "teacher" ? !row.ours : row.ours === name && row.model === column.model && row.split === column.split));
  const heads = columns.map((column) => ({
    label: [`Table ${column.table}`, el("br"), `${column.model}, ${column.split}`], num: true, cell: (name) => points(find(name, column)?.score ?? null),
  }));
  const here = { label: "Here", num: true, cell: (name) => points((name === "teacher" ? report.teacher_score : own.get(name)) ?? null) };
  return plainTable([{ label: "Method", head: true, cell: (name) => name }, here, ...heads], names, "Published scores beside ours, in per cent");
}
