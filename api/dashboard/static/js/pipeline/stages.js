// The stages of a pipeline in a row: what is over, what goes on, what is to come.

import { el } from "../dom.js";
import { duration, plural, whole } from "../format.js";

const STEP = "task distillation"; // done in the stage of the evaluations, beside them
const ORDER = ["search", "distillation", "evaluation", STEP, "done"];
const OVER = new Set(["succeeded", "failed", "cancelled"]);
const NAMES = { search: "Search", distillation: "Distillation", evaluation: "Evaluation", [STEP]: "For each task", done: "Report" };

/** Make the bar; `times` are the stages of the report, which may not be there yet. */
export function stageBar(pipeline, times) {
  return el(
    "ol",
    { class: "stages", "aria-label": "Stages" },
    ORDER.filter((stage) => stage !== STEP || pipeline.spec.task_distill).map((stage) => {
      const state = stateOf(pipeline, stage);
      const took = times.find((one) => one.stage === stage)?.seconds;
      return el(
        "li",
        { "data-state": state, "aria-current": stage === pipeline.stage && pipeline.status === "running" ? "step" : null },
        el("span", { class: "stage-name" }, NAMES[stage], el("span", { class: "visually-hidden" }, `: ${state}`)),
        el("span", { class: "stage-about" }, about(pipeline, stage)),
        took == null ? null : el("span", { class: "stage-about" }, duration(1000 * took)),
      );
    }),
  );
}

/** How it stands with a stage; what failed is told where it failed. */
function stateOf(pipeline, stage) {
  const { status, members } = pipeline;
  if (status === "succeeded") return "over";
  const parts = {
    search: [pipeline.search_status ?? "cancelled"],
    distillation: members.filter((m) => m.architecture).map((m) => m.distillation?.status ?? "cancelled"),
    evaluation: members.flatMap((m) => m.evaluations.map((run) => run.status)),
    [STEP]: members.flatMap((m) => m.task_distillations.map((one) => one.status)),
    done: [],
  }[stage];
  if (!parts.length) return "to come";
  if (parts.includes("failed")) return "failed";
  const isMade = members.every((m) => !m.architecture || OVER.has(m.distillation?.status ?? "cancelled"));
  const isWhole = !["evaluation", STEP].includes(stage) || OVER.has(status) || isMade;
  if (isWhole && parts.every((part) => part === "succeeded" || part === "cancelled")) {
    return parts.includes("succeeded") ? "over" : "cancelled";
  }
  return { paused: "paused", cancelled: "cancelled", queued: "to come" }[status] ?? "going on";
}

function about(pipeline, stage) {
  const { num_students: students, num_distilled: made, num_evaluations: asked, num_evaluated: scored } = pipeline;
  if (stage === "search") {
    const name = pipeline.search_name;
    return pipeline.search_id ? el("a", { href: `/searches/${pipeline.search_id}` }, name) : "deleted";
  }
  if (stage === "distillation") return students ? `${whole(made)} of ${plural(students, "student")}` : "chosen by the search";
  if (stage === "evaluation") return asked ? `${whole(scored)} of ${plural(asked, "run")}` : "of every student";
  if (stage === STEP) {
    const { num_task_distillations: asked, num_task_distilled: taught } = pipeline;
    return asked ? `${whole(taught)} of ${plural(asked, "distillation")}` : "what was chosen";
  }
  if (pipeline.status === "succeeded") return el("a", { href: "#report-title" }, "is below");
  return asked && scored ? el("a", { href: "#report-title" }, "so far, below") : "comes with the scores";
}
