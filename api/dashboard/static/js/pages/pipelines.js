// The list of pipelines.

import { byId, debounced, el, throttled } from "../dom.js";
import { follow } from "../events.js";
import { moment } from "../format.js";
import { bar, chip } from "../parts.js";
import { PagedTable } from "../table.js";

function share(done, total, label) {
  if (!total) return "–";
  return el("span", {}, bar(done / total, label, true), `${done} of ${total}`);
}

const columns = [
  { label: "Name", sort: "name", cell: (p) => el("a", { class: "name", href: `/pipelines/${p.id}` }, p.name) },
  { label: "Status", sort: "status", cell: (p) => chip(p.status) },
  { label: "Stage", sort: "stage", cell: (p) => p.stage },
  { label: "Students distilled", cell: (p) => share(p.num_distilled, p.num_students, `Students of ${p.name}`) },
  { label: "Evaluations", cell: (p) => share(p.num_evaluated, p.num_evaluations, `Evaluations of ${p.name}`) },
  { label: "Search", cell: (p) => (p.search_id ? el("a", { href: `/searches/${p.search_id}` }, p.search_name) : "–") },
  { label: "Created", sort: "created_at", cell: (p) => moment(p.created_at) },
  { label: "Ended", sort: "finished_at", cell: (p) => moment(p.finished_at) },
];

const table = new PagedTable(byId("table"), "/pipelines", columns, {
  sort: "-created_at",
  caption: "Pipelines",
  empty: () => byId("empty").content.cloneNode(true),
});

const refilter = () => table.filter({ q: byId("q").value.trim(), status: byId("status").value });
byId("q").addEventListener("input", debounced(refilter, 250));
byId("status").addEventListener("change", refilter);

// The browser's Back fills the fields as they were, but only once this script has run.
addEventListener("pageshow", refilter, { once: true });
const reload = throttled(() => table.load(), 1500);
follow({}, Number(document.body.dataset.since), (event) => event.pipeline_id && reload(), reload);
