// The list of pipelines.

import { el } from "../dom.js";
import { moment } from "../format.js";
import { listPage } from "../lists.js";
import { bar, chip, kindOf } from "../parts.js";

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

listPage("/pipelines", "Pipelines", columns, (event) => kindOf(event) !== null && event.job_id !== event.root_job_id || kindOf(event) === "pipeline");
