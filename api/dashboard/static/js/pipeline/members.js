// The models of a pipeline: a row for each, which fills as it is distilled and scored.

import { el, nothing, show } from "../dom.js";
import { fixed, millions, ms, percent, signed } from "../format.js";
import { bar, chip } from "../parts.js";
import { score } from "../scores.js";
import { plainTable } from "../table.js";

export const ROLES = {
  teacher: "teacher", variant: "undistilled teacher", chosen: "chosen", baseline: "baseline", random: "random pick",
  undistilled: "undistilled student", task: "distilled for each task",
};

const NONE = "–";

/** Show the members; `report` has their scores, null before it is read. */
export function showMembers(place, pipeline, report) {
  if (!pipeline.members.length) {
    const text = ["failed", "cancelled"].includes(pipeline.status)
      ? "The search chose no students."
      : "The students are chosen when the search has ended.";
    show(place, nothing(text));
    return;
  }
  const lines = new Map((report?.models ?? []).map((line) => [line.id, line]));
  const picks = new Set((report?.picks ?? []).map((pick) => pick.name));
  const number = (label, cell, small = () => null) => ({ label, num: true, cell: (member) => figure(cell(member, lines.get(member.id)), small(member, lines.get(member.id))) });
  const columns = [
    { label: "Model", head: true, cell: (member) => modelOf(member, lines.get(member.id), picks) },
    number(report?.score_name || "Score", (_, line) => score(line?.score)),
    number("Retained", (_, line) => percent(line?.retained?.value, 1), (_, line) => interval(line?.retained)),
    number(
      "Gained by distilling",
      (_, line) => (line?.gained ? signed(line.gained.value) : NONE),
      (_, line) => (line?.gained?.low == null ? null : `${signed(line.gained.low)} to ${signed(line.gained.high)}`),
    ),
    number("Latency", ({ figures: f }) => ms(f.latency_ms), ({ figures: f, role }) => (f.latency_ratio == null || role === "teacher" ? null : `${fixed(f.latency_ratio, 2)} × teacher`)),
    number("Parameters", ({ figures: f }, line) => millions(line?.params_millions ?? f.params_millions)),
    { label: "Distillation", cell: (member) => (member.architecture && !["undistilled", "task"].includes(member.role) ? distillation(member.distillation) : start(member)) },
    { label: "Evaluation", cell: evaluations },
    number("Reward", ({ figures: f }) => fixed(f.reward)),
    number("Loss in search", ({ figures: f }) => fixed(f.loss_relative)),
    number("Held-out loss", ({ distillation: made }, line) => fixed(line?.held_out_loss ?? made?.losses?.relative)),
  ];
  const attributes = (member) => ({ "data-role": member.role, "data-pick": picks.has(lines.get(member.id)?.name ?? nameOf(member)) });
  const left = place.querySelector(".scroll")?.scrollLeft ?? 0;
  const focused = place.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const taught = pipeline.num_task_distillations > 0;
  if (taught) columns.splice(7, 0, { label: "For tasks", cell: ({ role, task_distillations: steps }) => (role === "task" ? secondSteps(steps) : NONE) });
  const rows = pipeline.members.flatMap((member) => (member.task_distillations.length ? [member, afterSecondStep(member)] : [member]));
  show(place, plainTable(columns, rows, "Models of the pipeline", { name: "scores members", attributes }));
  place.querySelector(".scroll").scrollLeft = left;
  if (focused) place.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus();
}

/** The row of a member's student after it was distilled once more for each task, as the report has it. */
function afterSecondStep(member) {
  const { method } = member.task_distillations[0];
  return { ...member, id: `${member.id}-for-tasks`, role: "task", method, reasons: [{ about: method }], distillation: null, evaluations: [] };
}

function modelOf(member, line, picks) {
  const { distillation: made, role } = member;
  const name = line?.name ?? nameOf(member);
  const reasons = member.reasons.map(({ about }) => about).filter((about) => about !== name);
  return [
    made ? el("a", { class: "name", href: `/distillations/${made.id}` }, name) : name,
    picks.has(name) ? el("span", { class: "tag" }, "take") : null,
    el("div", { class: "muted" }, el("span", { class: "mark", "data-role": role }), [ROLES[role], ...reasons].join(" · ")),
  ];
}

/** The name that the report gives a model, before there is one. */
function nameOf({ role, architecture, reasons, method }) {
  if (!architecture) return reasons[0]?.about ?? "teacher";
  if (role === "task") return `${architecture} + ${method}`;
  return role === "undistilled" ? `${architecture} undistilled` : architecture;
}

/** What is not distilled has a chip only until it is made. */
function start({ distillation: made }) {
  return made && made.status !== "succeeded" ? el("span", { title: made.error }, chip(made.status)) : NONE;
}

const figure = (text, small) => [text, small && el("div", { class: "muted small" }, small)];

const interval = (share) =>
  share?.low == null ? null : `${fixed(100 * share.low, 1)} to ${fixed(100 * share.high, 1)}`;

function distillation(made) {
  if (!made) return NONE;
  const running = made.status === "running" && made.total;
  return el(
    "span",
    { title: made.error },
    chip(made.status),
    running ? el("div", {}, bar(made.done / made.total, `Progress of ${made.name}`, true)) : null,
  );
}

/** The distillations of a student, a task each: how far it is, then its score. */
function secondSteps(steps) {
  return steps.map(({ id, name, task, status, done, total, score: mean, metric, error }) =>
    el(
      "div",
      { title: error ?? metric },
      el("a", { href: `/task-distillations/${id}` }, task), " ",
      status === "succeeded" && mean != null ? fixed(100 * mean, 1) : chip(status),
      status === "running" && total ? bar(done / total, `Progress of ${name}`, true) : null,
    ),
  );
}

const FIRST = ["failed", "running", "queued", "paused", "cancelled"]; // what is said of several

function evaluations({ evaluations: runs }) {
  if (!runs.length) return NONE;
  const done = runs.filter(({ status }) => status === "succeeded").length;
  if (done === runs.length) return chip("succeeded");
  const share = runs.reduce((sum, run) => sum + (run.status === "succeeded" ? 1 : run.done / run.total || 0), 0) / runs.length;
  return el(
    "span",
    { title: runs.find(({ error }) => error)?.error },
    chip(FIRST.find((status) => runs.some((run) => run.status === status))),
    el("div", {}, bar(share, "Progress of the evaluations", true), el("small", {}, `${done} of ${runs.length}`)),
  );
}
