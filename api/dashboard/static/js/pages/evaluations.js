// All evaluations: the scores of a chosen model, and the runs they come from.

import { get } from "../api.js";
import { byId, el, nothing, problem, show, throttled } from "../dom.js";
import { follow } from "../events.js";
import { fixed, moment, plural } from "../format.js";
import { actionButtons, bar, chip } from "../parts.js";
import { showNoScores, showScores } from "../scores.js";
import { PagedTable } from "../table.js";

const query = new URLSearchParams(location.search);
const chooser = byId("model");
const beside = byId("against");
const scores = byId("scores").querySelector("[data-scores]");
let models = [];

const nameOf = (it) => it.distillation_name ?? it.model;
// A student may have been scored as what a distillation made, and as the folder that it lies in.
const keyOf = (it) => JSON.stringify([it.model, it.suite, it.distillation_id]);
const chosen = () => find(chooser.value) ?? models[0];

/** What a key is of. While a run of a folder is prepared it is found to be a distillation's: the rest is the same. */
function find(key) {
  const [model, suite] = key ? JSON.parse(key) : [];
  return models.find((it) => keyOf(it) === key) ?? models.find((it) => it.model === model && it.suite === suite);
}

/** What the address names. */
function asked() {
  const [model, suite, made] = ["model", "suite", "distillation"].map((name) => query.get(name));
  return models.find((it) => it.model === model && it.suite === suite && (made === null || (it.distillation_id ?? "") === made));
}

function progress(row) {
  if (row.status !== "running") return chip(row.status);
  return el("span", {}, chip(row.status), " ", bar(row.done / row.total, `Progress of ${row.task}, seed ${row.seed}`, true));
}

// In the unit of what is predicted, or its square, and of logits: not to be written per cent.
const isPlain = (metric) => ["mae", "mse", "rmse"].includes(metric) || metric.endsWith("_threshold");
const figure = ([metric, value]) => `${metric.replaceAll("_", " ")} ${isPlain(metric) ? fixed(value, 2) : fixed(100 * value, 1)}`;

function result(row) {
  if (row.error) return row.error;
  if (!row.metrics) return "–";
  return Object.entries(row.metrics)
    .map(([part, values]) => `${part}: ${Object.entries(values).map(figure).join(", ")}`)
    .join("; ");
}

const table = new PagedTable(
  byId("table"),
  "/evaluations",
  [
    { label: "Model", sort: "model", wrap: true, cell: (e) => (e.distillation_name ? el("a", { href: `/distillations/${e.distillation_id}` }, e.distillation_name) : e.model) },
    { label: "Suite", sort: "suite", cell: (e) => e.suite },
    { label: "Task", sort: "task", cell: (e) => e.task },
    { label: "Seed", sort: "seed", num: true, cell: (e) => String(e.seed) },
    { label: "Status", sort: "status", cell: progress },
    { label: "Result", help: "Per cent; errors such as rmse, and thresholds, as they are.", wrap: true, cell: result },
    { label: "Created", sort: "created_at", cell: (e) => moment(e.created_at) },
    { label: "", cell: (e) => el("span", { class: "row-actions" }, actionButtons(`/evaluations/${e.id}`, e, () => reload())) },
  ],
  { sort: "-created_at", caption: "Evaluations" },
);

/** Fill the choosers; what was chosen stays chosen. */
function showChoice() {
  const other = chooser.value ? beside.value : query.get("against");
  const now = (chooser.value ? find(chooser.value) : asked()) ?? models[0];
  show(
    chooser,
    models.map((it) => {
      const rest = it.num_unfinished ? `, ${it.num_unfinished} to do` : "";
      return el("option", { value: keyOf(it) }, `${nameOf(it)} · ${it.suite} (${plural(it.num_succeeded, "result")}${rest})`);
    }),
  );
  chooser.value = keyOf(now);
  const others = models.filter(
    (it, place) => it.suite === now.suite && it.model !== now.model && it.num_succeeded > 0 && place === models.findIndex((one) => one.model === it.model && one.suite === it.suite && one.num_succeeded > 0),
  );
  show(beside, el("option", { value: "" }, "published results only"), others.map((it) => el("option", { value: it.model }, nameOf(it))));
  beside.value = others.some((it) => it.model === other) ? other : "";
}

/** Let the address name what is shown. */
function noteChoice() {
  const { model, suite, distillation_id: distillation } = chosen();
  const against = beside.value ? { against: beside.value } : {};
  history.replaceState(null, "", `?${new URLSearchParams({ model, suite, distillation: distillation ?? "", ...against })}`);
}

async function showReport() {
  const it = chosen();
  if (!it.num_succeeded) {
    showNoScores(scores, nothing(it.num_unfinished ? "The scores appear with the first finished run." : "No run of this model has succeeded."));
    return;
  }
  const model = it.distillation_id ? `distillation:${it.distillation_id}` : it.model;
  await showScores(scores, { model, suite: it.suite, against: beside.value ? [beside.value] : [] });
}

function filters() {
  const { model, suite, distillation_id: distillation } = chosen();
  return { ...(byId("which").value === "chosen" ? { model, suite, distillation } : {}), status: byId("status").value };
}

async function read() {
  try {
    ({ items: models } = await get("/evaluations/models"));
  } catch (error) {
    show(byId("problem"), problem(error, reload));
    if (!models.length) byId("content").hidden = true;
    return;
  }
  byId("problem").replaceChildren();
  byId("nothing").hidden = models.length > 0;
  byId("content").hidden = models.length === 0;
  if (!models.length) {
    for (const place of [scores, byId("table")]) place.replaceChildren();
    return;
  }
  const before = chooser.value;
  showChoice();
  await Promise.all([showReport(), chooser.value === before ? table.load() : table.filter(filters())]);
}

const reload = throttled(read, 1500);

chooser.addEventListener("change", () => {
  showChoice();
  noteChoice();
  showReport();
  table.filter(filters());
});
beside.addEventListener("change", () => {
  noteChoice();
  showReport();
});
for (const id of ["which", "status"]) byId(id).addEventListener("change", () => table.filter(filters()));

reload();
follow({}, Number(document.body.dataset.since), (event) => event.type.startsWith("evaluation") && reload(), reload);
