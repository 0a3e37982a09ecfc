// The list of full distillations.

import { byId, debounced, el, throttled } from "../dom.js";
import { follow } from "../events.js";
import { fixed, moment, whole } from "../format.js";
import { bar, chip } from "../parts.js";
import { PagedTable } from "../table.js";

function progress(row) {
  if (!row.total_steps) return row.total_steps === 0 ? "undistilled" : "–";
  const label = `Progress of ${row.name}`;
  const text = `${whole(row.step)} / ${whole(row.total_steps)} steps`;
  return el("span", {}, bar(row.step / row.total_steps, label, true), text);
}

const columns = [
  { label: "Name", sort: "name", cell: (d) => el("a", { class: "name", href: `/distillations/${d.id}` }, d.name) },
  { label: "Architecture", sort: "architecture", cell: (d) => d.architecture },
  { label: "Status", sort: "status", cell: (d) => chip(d.status) },
  { label: "Progress", cell: progress },
  { label: "Held-out loss", num: true, cell: (d) => fixed(d.losses?.relative) },
  { label: "Created", sort: "created_at", cell: (d) => moment(d.created_at) },
  { label: "Ended", sort: "finished_at", cell: (d) => moment(d.finished_at) },
];

const table = new PagedTable(byId("table"), "/distillations", columns, {
  sort: "-created_at",
  caption: "Distillations",
  empty: () => byId("empty").content.cloneNode(true),
});

const refilter = () =>
  table.filter({ architecture: byId("architecture").value.trim(), status: byId("status").value });
byId("architecture").addEventListener("input", debounced(refilter, 250));
byId("status").addEventListener("change", refilter);

// The browser's Back fills the fields as they were, but only once this script has run.
addEventListener("pageshow", refilter, { once: true });
const reload = throttled(() => table.load(), 1500);
follow({}, Number(document.body.dataset.since), (event) => event.distillation_id && reload(), reload);
