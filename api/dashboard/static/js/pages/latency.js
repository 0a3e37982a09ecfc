// Latency tables: how long each architecture takes under one profile.

import { ApiError, get, getAll, tried } from "../api.js";
import { Chart, colour, seriesColour } from "../charts.js";
import { byId, debounced, el, nothing, problem, show } from "../dom.js";
import { follow } from "../events.js";
import { fixed, moment, ms, parts, percent, plural, whole } from "../format.js";
import { actionButtons, bar, chip, kindOf, tiles } from "../parts.js";
import { plainTable } from "../table.js";

const MOST_ENTRIES = 20_000;
const SHOWN = 25;
const SHADES = ["series-1", "series-2", "series-3", "series-4", "series-dim", "ink"];
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];

let table = null;
let entries = [];

const spread = new Chart(byId("spread"), ({ rows, teacher }) => ({
  traces: [
    {
      type: "histogram", x: rows.map((r) => r.latency_ms), nbinsx: 40,
      marker: { color: colour("series-1"), line: { color: colour("surface"), width: 1 } },
      hovertemplate: "%{y} architectures<br>%{x} ms<extra></extra>",
    },
  ],
  layout: {
    showlegend: false,
    xaxis: { title: { text: "latency (ms)" }, rangemode: "tozero" },
    yaxis: { title: { text: "architectures" } },
    ...(teacher && mark(teacher, "teacher")),
  },
  label: `Latencies of ${rows.length} architectures, from ${ms(rows[0]?.latency_ms)} to ${ms(rows.at(-1)?.latency_ms)}`,
}));

/** A line upright in the chart, with a word beside it. */
function mark(x, text) {
  const tint = colour("series-2");
  return {
    shapes: [{ type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line: { color: tint, width: 2, dash: "dash" } }],
    annotations: [{ x, yref: "paper", y: 1, text, showarrow: false, xanchor: "right", xshift: -5, font: { color: tint } }],
  };
}

const byLayers = new Chart(byId("by-layers"), ({ rows }) => {
  const widths = [...new Set(rows.map((r) => r.hidden))].sort((a, b) => a - b);
  const depths = [...new Set(rows.map((r) => r.layers))].sort((a, b) => a - b);
  return {
    traces: widths.map((width, i) => {
      const of = (depth) => rows.filter((r) => r.hidden === width && r.layers === depth).map((r) => r.latency_ms);
      const known = depths.filter((depth) => of(depth).length);
      return {
        type: "scatter", mode: "lines+markers", name: `hidden ${width}`, x: known, y: known.map((depth) => median(of(depth))),
        line: { color: colour(SHADES[i % SHADES.length]), width: 2, dash: DASHES[i % DASHES.length] },
        hovertemplate: `%{x} layers: %{y:.2f} ms<extra>hidden ${width}</extra>`,
      };
    }),
    layout: { xaxis: { title: { text: "layers" }, dtick: 1 }, yaxis: { title: { text: "median latency (ms)" }, rangemode: "tozero" } },
    label: "Median latency by number of layers and hidden size",
  };
});

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

const nameOf = (t) =>
  [t.device, t.runtime, t.threads ? plural(t.threads, "thread") : null, t.dtype, `${t.length} tokens`].filter(Boolean).join(" · ");

let last = 0; // number of the last question

async function load(id) {
  const asked = ++last;
  const path = `/latency-tables/${encodeURIComponent(id)}`;
  byId("problem").replaceChildren();
  const read = async () => {
    const chosen = await get(path, { limit: 1, sort: "-latency_ms" });
    const found = await getAll(path, { sort: "latency_ms" }, MOST_ENTRIES, (answer) => answer.entries);
    if (asked === last) await showTable(chosen, found.map((row) => ({ ...row, ...parts(row.architecture) })));
  };
  await tried(read, (error) => {
    if (asked !== last) return; // a later question is under way
    byId("content").hidden = true;
    show(byId("problem"), problem(error, () => load(id)));
  });
}

async function showTable(chosen, rows) {
  table = chosen;
  entries = rows;
  const hidden = table.num_entries > entries.length;
  const [slowest] = table.entries.items;
  byId("content").hidden = false;
  const quality = table.quality ?? {};
  show(
    byId("facts"),
    ...tiles([
      ["Teacher", ms(table.teacher_ms)],
      ["Architectures", whole(table.num_entries), hidden ? el("small", {}, ` the fastest ${whole(entries.length)} are shown`) : ""],
      ["Fastest", ms(entries[0]?.latency_ms)],
      ["Slowest", ms(slowest?.latency_ms)],
      ["Error of the model", percent(quality.median_error, 1), el("small", {}, " median")],
      ["Rank correlation", fixed(quality.spearman)],
      ["Measured", moment(table.created_at)],
    ]).children,
  );
  find();
  if (entries.length) {
    await Promise.all([
      spread.update({ rows: entries, teacher: table.teacher_ms }),
      byLayers.update({ rows: entries }),
    ]);
  }
}

function find() {
  const { text, max } = Object.fromEntries(new FormData(byId("find")));
  const wanted = text.split(",").map((part) => part.trim().toLowerCase());
  const limit = Number.parseFloat(max);
  const fits = (row) =>
    row.architecture.split(",").every((part, i) => !wanted[i] || part === wanted[i]) &&
    (Number.isNaN(limit) || row.latency_ms <= limit);
  const found = entries.filter(fits);
  if (!found.length) {
    const among = table.num_entries > entries.length ? ` among the fastest ${whole(entries.length)}` : "";
    show(byId("entries"), nothing(`No architecture${among} of this table fits.`));
    return;
  }
  const columns = [
    { label: "Architecture", cell: (r) => r.architecture },
    { label: "Latency", num: true, cell: (r) => ms(r.latency_ms) },
    { label: "Spread", num: true, cell: (r) => (r.measured ? `± ${ms(r.spread_ms)}` : "–") },
    { label: "Of the teacher's", num: true, cell: (r) => percent(table.teacher_ms ? r.latency_ms / table.teacher_ms : null, 1) },
    { label: "Known by", cell: (r) => (r.measured ? "measuring" : "the model of its blocks") },
  ];
  const more = found.length > SHOWN ? `, the fastest ${SHOWN} shown` : "";
  show(
    byId("entries"),
    plainTable(columns, found.slice(0, SHOWN), "Architectures by latency"),
    el("p", { class: "pager" }, `${whole(found.length)} fit${more}`),
  );
}

async function begin() {
  let tables;
  try {
    tables = await getAll("/latency-tables");
  } catch (error) {
    show(byId("problem"), problem(error, begin));
    return;
  }
  byId("nothing").hidden = tables.length > 0;
  const select = byId("profile");
  const looked = tables.find((t) => t.id === select.value) ?? tables[0]; // what is looked at stays
  select.closest(".filters").hidden = !tables.length;
  show(select, tables.map((t) => el("option", { value: t.id }, `${nameOf(t)}${t.complete === false ? " (being built)" : ""}`)));
  if (!looked) return;
  select.value = looked.id;
  await load(looked.id);
}

const BUILDS_MS = 2000;
let open = []; // ids of the builds that were not over at the last look
let next = 0; // timer of the next look
const FAILED_SHOWN_MS = 24 * 3600 * 1000;

const isOpen = (build) => ["queued", "running", "paused"].includes(build.status);
const isNews = (build) => isOpen(build) || (build.status === "failed" && Date.now() - Date.parse(build.finished_at) < FAILED_SHOWN_MS);

/** Tables on their way; how far each is, is asked for. */
async function watchBuilds() {
  clearTimeout(next);
  let builds;
  try {
    builds = (await getAll("/latency-builds")).filter(isNews);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    next = setTimeout(watchBuilds, 5 * BUILDS_MS);
    return;
  }
  const box = byId("builds");
  box.hidden = !builds.length;
  const columns = [
    { label: "Teacher", cell: (b) => b.spec.teacher?.ref ?? b.spec.teacher ?? "minilm" },
    { label: "Status", cell: (b) => chip(b.status) },
    { label: "Done", wrap: true, cell: (b) => (isOpen(b) ? bar(b.done / b.total, "Share of the table that is measured", true) : b.error) },
    { label: "Asked for", cell: (b) => moment(b.created_at) },
    { label: "", cell: (b) => el("span", { class: "actions" }, actionButtons(`/latency-builds/${b.id}`, b, watchBuilds)) },
  ];
  const focused = document.activeElement;
  show(box.querySelector("[data-rows]"), plainTable(columns, builds, "Latency tables being measured"));
  if (box.contains(focused)) focused.focus(); // the buttons are the same ones as before
  const before = open;
  open = builds.filter(isOpen).map((b) => b.id);
  clearTimeout(next);
  if (open.length) next = setTimeout(watchBuilds, BUILDS_MS);
  if (before.some((id) => !open.includes(id))) await begin();
}

byId("profile").addEventListener("change", (event) => load(event.target.value));
byId("find").addEventListener("input", debounced(find, 150));
byId("find").addEventListener("submit", (event) => event.preventDefault());
begin();
watchBuilds();
follow({}, Number(document.body.dataset.since), (event) => kindOf(event) === "latency_build" && watchBuilds(), watchBuilds);
