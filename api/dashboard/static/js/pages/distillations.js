// The list of full distillations.

import { el } from "../dom.js";
import { fixed, moment, whole } from "../format.js";
import { listPage } from "../lists.js";
import { bar, chip, kindOf } from "../parts.js";

function progress(row) {
  if (!row.total) return row.total === 0 ? "undistilled" : "–";
  const label = `Progress of ${row.name}`;
  const text = `${whole(row.done)} / ${whole(row.total)} steps`;
  return el("span", {}, bar(row.done / row.total, label, true), text);
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

listPage("/distillations", "Distillations", columns, (event) => kindOf(event) === "distillation");
