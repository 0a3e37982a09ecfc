// All jobs: what is queued, running and done, what each does, who works on it; parts fold under
// the job that asked for them.

import { getAll } from "../api.js";
import { el } from "../dom.js";
import { moment, percent, whole } from "../format.js";
import { labelsOf, pageOf, standingOf } from "../job.js";
import { listPage } from "../lists.js";
import { actionButtons, bar, chip, failed } from "../parts.js";
import { plainTable } from "../table.js";

const noun = (kind) => kind.replaceAll("_", " ");
const open = new Set(); // ids of the jobs whose parts are shown

function name(job) {
  const link = el("a", { class: "name", href: pageOf(job) }, job.name ?? job.id);
  return el("span", { class: "job-name" }, link, job.note && el("small", { class: "muted" }, job.note), labelsOf(job));
}

function doing(job) {
  const by = job.worker ?? (job.owner_kind === "cli" ? "of the command line" : null);
  return el("span", { class: "doing" }, el("span", {}, job.error ?? standingOf(job, false)), by && el("small", { class: "muted" }, by));
}

/** When a job was asked for, and by whom: a column of its own would push what can be done out of sight. */
function created(job) {
  return el("span", { class: "doing" }, el("span", {}, moment(job.created_at)), job.owner && el("small", { class: "muted" }, `by ${job.owner}`));
}

function progress(job) {
  if (!job.total) return job.num_children ? `${whole(job.num_children_ended)} of ${whole(job.num_children)} parts` : "–";
  const share = job.status === "succeeded" ? 1 : job.done / job.total;
  const failures = job.num_failed ? el("small", { class: "muted" }, ` ${whole(job.num_failed)} failed`) : null;
  return el("span", { title: `${whole(job.done)} of ${whole(job.total)}` }, bar(share, `Progress of ${job.name ?? job.id}`, true), percent(share), failures);
}

function fold(job) {
  if (!job.num_children) return "";
  const button = el("button", { type: "button", class: "quiet small", "aria-expanded": String(open.has(job.id)), "data-key": `fold-${job.id}` }, `${whole(job.num_children)} parts`);
  button.addEventListener("click", () => {
    if (!open.delete(job.id)) open.add(job.id);
    showParts(job, button.closest("tr"));
    button.setAttribute("aria-expanded", String(open.has(job.id)));
  });
  if (open.has(job.id)) queueMicrotask(() => showParts(job, button.closest("tr")));
  return button;
}

const takeAway = (job, row) => row.nextElementSibling?.dataset.parts === job.id && row.nextElementSibling.remove();

/** Put a row with the parts of a job below its own, or take it away. */
async function showParts(job, row) {
  if (!row) return;
  takeAway(job, row);
  if (!open.has(job.id)) return;
  try {
    const items = await getAll("/jobs", { parent: job.id, sort: "created_at" });
    if (!open.has(job.id) || !row.isConnected) return; // folded, or shown anew, meanwhile
    takeAway(job, row);
    const place = el("td", { colspan: String(row.children.length) }, plainTable(columns.filter((c) => !c.root), items, `Parts of ${job.name ?? job.id}`));
    row.after(el("tr", { class: "parts", "data-parts": job.id }, place));
  } catch (error) {
    failed(error);
  }
}

const columns = [
  { label: "Name", sort: "name", cell: name },
  { label: "Kind", sort: "kind", cell: (job) => noun(job.kind) },
  { label: "Status", sort: "status", cell: (job) => chip(job.status) },
  { label: "What it does or waits for", wrap: true, cell: doing },
  { label: "Done", cell: progress },
  { label: "Created", sort: "created_at", cell: created },
  { label: "", root: true, cell: fold },
  { label: "", cell: (job) => el("span", { class: "row-actions" }, actionButtons(`/jobs/${job.id}`, job, () => table.load())) },
];

const table = listPage("/jobs", "Jobs", columns, () => true);
