// A sweep: how far it is, what it has read of each state, and what the first reading foretells.

import { get, tried } from "../api.js";
import { Chart, colour, faded } from "../charts.js";
import { byId, el, nothing, problem, show, throttled } from "../dom.js";
import { fixed, millions, moment, ms, percent, plural, whole } from "../format.js";
import { jobFrame, showHead } from "../job.js";
import { bar, downloads, facts, failed, tiles } from "../parts.js";
import { frontOf, rankCorrelation, statesOf } from "../sweep/readings.js";
import { plainTable } from "../table.js";

const STATE_MS = 5000;
const TABLE_MS = 5000; // the whole table is read anew
const RATIOS = [0.1, 0.2, 0.4, 1];
const reference = document.body.dataset.subject;
const path = `/sweeps/${encodeURIComponent(reference)}`;
const place = byId("readings");
const choice = place.querySelector("[data-step]");
let states = [];
let sweep = null;

const hover = (state, step) => `${state.architecture}<br>loss ${fixed(state.losses.get(step))}<br>${ms(state.latency_ms)}`;

const stepWords = (step) => (step === 0 ? "at the start" : `after ${plural(step, "step")}`);

const tradeoff = new Chart(byId("tradeoff"), ({ known, step }) => {
  if (!known.length) return { empty: "No state has been read yet." };
  const front = frontOf(known, step);
  const marks = (name, own, more) => ({
    type: "scatter", mode: "markers", name, x: own.map((s) => s.latency_ms), y: own.map((s) => s.losses.get(step)),
    text: own.map((s) => hover(s, step)), hovertemplate: "%{text}<extra></extra>", ...more,
  });
  return {
    traces: [
      marks("states", known, { marker: { size: 5, color: faded(colour("series-1"), 0.5), line: { width: 0 } } }),
      marks("Pareto front", front, { mode: "lines+markers", line: { color: colour("ink"), width: 1.5, shape: "hv" }, marker: { size: 6, color: colour("ink") } }),
    ],
    layout: { xaxis: { title: { text: "latency (ms)" }, rangemode: "tozero" }, yaxis: { title: { text: `loss ${stepWords(step)}` } } },
    label: `${whole(known.length)} states by latency and loss ${stepWords(step)}, ${whole(front.length)} of them on the Pareto front`,
  };
});

const foretold = new Chart(byId("foretold"), ({ first, last }) => {
  const both = states.filter((s) => s.losses.has(first) && s.losses.has(last));
  if (first === last) return { empty: "There is one reading of each state." };
  if (both.length < 3) return { empty: "It takes three states that were read to the end." };
  const [x, y] = [first, last].map((step) => both.map((s) => s.losses.get(step)));
  const order = fixed(rankCorrelation(x, y));
  byId("foretold").querySelector("[data-caption]").textContent = `Rank correlation with the last one ${order}, over ${plural(both.length, "state")}.`;
  return {
    traces: [
      {
        type: "scatter", mode: "markers", x, y, text: both.map((s) => s.architecture),
        marker: { size: 5, color: faded(colour("series-1"), 0.5), line: { width: 0 } },
        hovertemplate: "%{text}<br>%{x:.3f}, then %{y:.3f}<extra></extra>",
      },
    ],
    layout: { showlegend: false, xaxis: { title: { text: `loss ${stepWords(first)}` } }, yaxis: { title: { text: `loss ${stepWords(last)}` } } },
    label: `Loss ${stepWords(last)} by loss ${stepWords(first)}, rank correlation ${order}`,
  };
});

function showSummary() {
  const { done = 0, total } = sweep;
  const begun = sweep.started_at ? `started ${moment(sweep.started_at)}` : `asked for ${moment(sweep.created_at)}`;
  const each = sweep.seeds.length;
  // What is counted are the states of each seed by themselves.
  const counted = each > 1 ? `${whole(total)}: ${plural(total / each, "state")} under ${each} seeds` : plural(total, "state");
  const progress = total ? `${whole(done)} of ${counted}` : "Not begun yet";
  showHead(
    sweep,
    { path, about: `sweep · ${begun}`, changed: readState },
    el("div", { class: "progress-row" }, el("span", {}, progress)),
    bar(total ? done / total : 0, "Progress of the sweep"),
    sweep.warnings.map((text) => el("p", { class: "notice" }, text)),
    tiles([
      ["Teacher", sweep.teacher],
      ["Objective", sweep.objective],
      ["States read", whole(states.length)],
      ["Read after", sweep.steps.join(", "), el("small", {}, " steps")],
      [sweep.seeds.length > 1 ? "Seeds" : "Seed", sweep.seeds.join(", ")],
    ]),
  );
}

function showSpec() {
  const { spec } = sweep;
  show(
    byId("spec"),
    facts([["Text", sweep.corpus.join(", ")], ["Drawn", spec.states ? plural(spec.states, "state") : "all states of the space"]], true),
    el("details", {}, el("summary", {}, "All of it"), el("pre", { class: "scroll" }, JSON.stringify(spec, null, 2))),
  );
}

/** The lowest loss within shares of the teacher's latency. */
function showBest(step) {
  const known = states.filter((s) => s.losses.has(step));
  if (!known.length) {
    show(place.querySelector("[data-best]"), nothing("No state has been read yet."));
    return;
  }
  const rows = RATIOS.map((ratio) => {
    const within = known.filter((s) => s.latency_ms <= ratio * s.teacher_ms);
    return { ratio, best: within.reduce((best, s) => (!best || s.losses.get(step) < best.losses.get(step) ? s : best), null) };
  });
  const columns = [
    { label: "Latency at most", cell: ({ ratio }) => `${percent(ratio)} of the teacher's`, head: true },
    { label: "Lowest loss", num: true, cell: ({ best }) => fixed(best?.losses.get(step)) },
    { label: "State", cell: ({ best }) => best?.architecture ?? "none read" },
    { label: "Latency", num: true, cell: ({ best }) => ms(best?.latency_ms) },
    { label: "Parameters", num: true, cell: ({ best }) => millions(best?.params_millions) },
  ];
  show(place.querySelector("[data-best]"), plainTable(columns, rows, "The lowest loss within shares of the teacher's latency"));
}

/** Where all readings are to be had as a file, once there are some. */
function showFiles() {
  if (!states.length) return;
  show(place.querySelector("[data-downloads]"), downloads({ parquet: "Parquet", csv: "CSV" }, `${path}/table`, {}, sweep.name));
  show(place.querySelector("[data-command]"), "A table for benchmarks, of several sweeps as well: ", el("code", {}, `kdnas tabular make ${sweep.name} --output table.parquet`));
}

async function showReadings() {
  const step = Number(choice.value);
  const known = states.filter((s) => s.losses.has(step));
  showBest(step);
  showFiles();
  await Promise.all([tradeoff.update({ known, step }), foretold.update({ first: Math.min(...sweep.steps), last: Math.max(...sweep.steps) })]);
}

async function readTable() {
  try {
    states = statesOf(await get(`${path}/table`, { format: "csv" }));
  } catch (error) {
    if (error.status !== 409) throw error; // nothing was read yet
    states = [];
  }
}

const renewTable = throttled(
  () =>
    tried(
      async () => {
        await readTable();
        showSummary();
        await showReadings();
      },
      (error) => show(place.querySelector("[data-best]"), problem(error, renewTable)),
    ),
  TABLE_MS,
);

async function read() {
  const before = sweep?.done;
  sweep = await get(path);
  byId("problem").replaceChildren();
  if (!choice.options.length) {
    show(choice, sweep.steps.map((step) => el("option", { value: step, selected: step === sweep.steps.at(-1) }, stepWords(step))));
    choice.addEventListener("change", showReadings);
  }
  showSummary();
  showSpec();
  if (sweep.done !== before) renewTable();
}

function gone(error) {
  failed(error);
  byId("summary").replaceChildren();
  for (const chart of [tradeoff, foretold]) chart.fail(error);
}

const readState = throttled(() => tried(read, gone), 1000);
const watch = jobFrame(reference, readState);
// What was read tells nobody by an event.
setInterval(() => !document.hidden && sweep?.status === "running" && readState(), STATE_MS);
await tried(read, gone);
watch(sweep?.id ?? reference, readState, readState);
