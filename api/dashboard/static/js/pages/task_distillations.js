// The list of distillations for a task.

import { el } from "../dom.js";
import { moment, plural, whole } from "../format.js";
import { listPage } from "../lists.js";
import { bar, chip, kindOf } from "../parts.js";

function progress(row) {
  if (!row.total) return "–";
  const text = `${whole(row.done)} / ${plural(row.total, "run")}`;
  return el("span", {}, bar(row.done / row.total, `Progress of ${row.name}`, true), text);
}

const methods = ({ methods: names }) => (names.length > 2 ? el("span", { title: names.join(", ") }, plural(names.length, "method")) : names.join(", "));

/** A student that is a folder by the folder's own name. */
const student = ({ student: named }) => (named.startsWith("/") ? el("span", { title: named }, `…/${named.split("/").at(-1)}`) : named);

const columns = [
  { label: "Name", sort: "name", cell: (t) => el("a", { class: "name", href: `/task-distillations/${t.id}` }, t.name) },
  { label: "Task", sort: "task", cell: (t) => t.task },
  { label: "Student", cell: student },
  { label: "Methods", cell: methods },
  { label: "Status", sort: "status", cell: (t) => chip(t.status) },
  { label: "Progress", cell: progress },
  { label: "Created", sort: "created_at", cell: (t) => moment(t.created_at) },
  { label: "Ended", sort: "finished_at", cell: (t) => moment(t.finished_at) },
];

listPage("/task-distillations", "Distillations for a task", columns, (event) => kindOf(event) === "task_distillation");
