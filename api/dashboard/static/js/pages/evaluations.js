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
const keyOf = (it) => JSON.stringify([it.model, it.suite]);
const chosen = () => models.find((it) => keyOf(it) === chooser.value) ?? models[0];

function progress(row) {
  if (row.status !== "running") return chip(row.status);
  return el("span", {}, chip(row.status), " ", bar(row.done / row.total, `Progress of ${row.task}, seed ${row.seed}`, true));
}

function result(row) {
  if (row.error) return row.error;
  if (!row.metrics) return "–";
  return Object.entries(row.metrics)
    .map(([part, values]) => `${part}: ${Object.entries(values).map(([name, v]) => `${name.replaceAll("_", " ")} ${fixed(100 * v, 1)}`).join(", ")}`)
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
    { label: "Result (per cent)", wrap: true, cell: result },
    { label: "Created", sort: "created_at", cell: (e) => moment(e.created_at) },
    { label: "", cell: (e) => el("span", { class: "row-actions" }, actionButtons(`/evaluations/${e.id}`, e, () => reload())) },
  ],
  { sort: "-created_at", caption: "Evaluations" },
);

/** Fill the choosers; what was chosen stays chosen. */
function showChoice() {
  const other = chooser.value ? beside.value : query.get("against");
  const before = chooser.value || JSON.stringify([query.get("model"), query.get("suite")]);
  show(
    chooser,
    models.map((it) => {
      const rest = it.num_unfinished ? `, ${it.num_unfinished} to do` : "";
      return el("option", { value: keyOf(it) }, `${nameOf(it)} · ${it.suite} (${plural(it.num_succeeded, "result")}${rest})`);
    }),
  );
  chooser.value = models.some((it) => keyOf(it) === before) ? before : keyOf(models[0]);
  const others = models.filter(
    (it) => it.suite === chosen().suite && it.model !== chosen().model && it.num_succeeded > 0,
  );
  show(beside, el("option", { value: "" }, "published results only"), others.map((it) => el("option", { value: it.model }, nameOf(it))));
  beside.value = others.some((it) => it.model === other) ? other : "";
}

/** Let the address name what is shown. */
function noteChoice() {
  const { model, suite } = chosen();
  const against = beside.value ? { against: beside.value } : {};
  history.replaceState(null, "", `?${new URLSearchParams({ model, suite, ...against })}`);
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
  const { model, suite } = chosen();
  return { ...(byId("which").value === "chosen" ? { model, suite } : {}), status: byId("status").value };
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
  const first = !chooser.value;
  showChoice();
  await Promise.all([showReport(), first ? table.filter(filters()) : table.load()]);
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
