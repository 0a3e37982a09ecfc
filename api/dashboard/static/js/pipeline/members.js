// The models of a pipeline: a row for each, which fills as it is distilled and scored.

import { el, show } from "../dom.js";
import { fixed, millions, ms, percent, signed } from "../format.js";
import { bar, chip } from "../parts.js";

export const ROLES = {
  teacher: "teacher", variant: "undistilled teacher", chosen: "chosen", baseline: "baseline", random: "random pick",
  undistilled: "undistilled student",
};

const NONE = "–";

/** Show the members; `report` has their scores, null before it is read. */
export function showMembers(place, pipeline, report) {
  if (!pipeline.members.length) {
    const text = ["failed", "cancelled"].includes(pipeline.status)
      ? "The search chose no students."
      : "The students are chosen when the search has ended.";
    show(place, el("div", { class: "empty slim" }, text));
    return;
  }
  const lines = new Map((report?.models ?? []).map((line) => [line.id, line]));
  const picks = new Set((report?.picks ?? []).map((pick) => pick.name));
  const scoreName = report?.score_name || "Score";
  const heads = [
    ["Model"], [scoreName, true], ["Retained", true], ["Gained by distilling", true], ["Latency", true], ["Parameters", true], ["Distillation"],
    ["Evaluation"], ["Reward", true], ["Loss in search", true], ["Held-out loss", true],
  ];
  const known = place.querySelector(".scroll");
  const left = known?.scrollLeft ?? 0;
  const focused = place.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  show(
    place,
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Models" },
      el(
        "table",
        { class: "scores members" },
        el("caption", { class: "visually-hidden" }, "Models of the pipeline"),
        el("thead", {}, el("tr", {}, heads.map(([text, num]) => el("th", { scope: "col", class: num && "num" }, text)))),
        el("tbody", {}, pipeline.members.map((member) => row(member, lines.get(member.id), picks))),
      ),
    ),
  );
  place.querySelector(".scroll").scrollLeft = left;
  if (focused) place.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus();
}

function row(member, line, picks) {
  const { figures: f, distillation: made } = member;
  const name = line?.name ?? nameOf(member);
  const reasons = member.reasons.map(({ about }) => about).filter((about) => about !== name);
  const held = line?.held_out_loss ?? made?.losses?.relative;
  return el(
    "tr",
    { "data-role": member.role, "data-pick": picks.has(name) },
    el(
      "th",
      { scope: "row" },
      made ? el("a", { class: "name", href: `/distillations/${made.id}` }, name) : name,
      picks.has(name) ? el("span", { class: "tag" }, "take") : null,
      el("div", { class: "muted" }, el("span", { class: "mark", "data-role": member.role }), [ROLES[member.role], ...reasons].join(" · ")),
    ),
    number(score(line?.score)),
    number(percent(line?.retained?.value, 1), interval(line?.retained)),
    number(line?.gained ? signed(line.gained.value) : NONE, line?.gained?.low == null ? null : `${signed(line.gained.low)} to ${signed(line.gained.high)}`),
    number(ms(f.latency_ms), f.latency_ratio == null || member.role === "teacher" ? null : `${fixed(f.latency_ratio, 2)} × teacher`),
    number(millions(line?.params_millions ?? f.params_millions)),
    el("td", {}, member.architecture && member.role !== "undistilled" ? distillation(made) : start(member)),
    el("td", {}, evaluations(member)),
    number(fixed(f.reward)),
    number(fixed(f.loss_relative)),
    number(fixed(held)),
  );
}

/** The name that the report gives a model, before there is one. */
function nameOf({ role, architecture, reasons }) {
  if (!architecture) return reasons[0]?.about ?? "teacher";
  return role === "undistilled" ? `${architecture} undistilled` : architecture;
}

/** What is not distilled has a chip only until it is made. */
function start({ distillation: made }) {
  return made && made.status !== "succeeded" ? el("span", { title: made.error }, chip(made.status)) : NONE;
}

const number = (text, small = null) => el("td", { class: "num" }, text, small && el("div", { class: "muted small" }, small));

function score(cell) {
  if (!cell) return NONE;
  return fixed(100 * cell.mean, 1) + (cell.deviation == null ? "" : ` ± ${fixed(100 * cell.deviation, 1)}`);
}

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

function evaluations({ evaluations: runs }) {
  if (!runs.length) return NONE;
  const done = runs.filter(({ status }) => status === "succeeded").length;
  const failed = runs.filter(({ status }) => status === "failed").length;
  if (done === runs.length) return chip("succeeded");
  const share = runs.reduce((sum, run) => sum + (run.status === "succeeded" ? 1 : run.done / run.total || 0), 0) / runs.length;
  return el(
    "span",
    { title: runs.find(({ error }) => error)?.error },
    failed ? chip("failed") : chip(runs.some(({ status }) => status === "running") ? "running" : "queued"),
    el("div", {}, bar(share, "Progress of the evaluations", true), el("small", {}, `${done} of ${runs.length}`)),
  );
}
