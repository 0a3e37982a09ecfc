// The form that launches a pipeline.

import { NAME, SPACE, episodes, folded, formPage, goTo, goal, length, nameTasks, objective, scoring, strategy, teacher, text } from "../fields.js";
import { SpecForm } from "../form.js";
import { offerPresets } from "../presets.js";

const TOP = { type: "integer", minimum: 1, maximum: 50, default: 3 };
const BUDGETS = { type: "array", items: { type: "number", exclusiveMinimum: 0 } };
const SEARCH = folded("search.").map(({ title, path }) => ({ title: title === "Student" ? "Student in the search" : title, path }));

formPage(["/schemas/pipeline", "/evaluations/suites", "/presets"], (form, schema, { items: suites }, { items: presets }) => {
  const spec = new SpecForm(form, schema, {
    path: "/pipelines",
    submit: "Launch the pipeline",
    done: goTo("/pipelines"),
    hidden: [
      "search.name", "search.teacher.fingerprint", "search.corpus.fingerprint", "search.backend.address",
      "search.objective", "distillation.objective", "distillation.training.address",
    ],
    labels: { "search.backend.name": "Backend", "search.student.init": "Start", "distillation.student.init": "Start" },
    main: [
      { title: "What is learned from what", fields: [NAME, teacher("search."), text("search."), { ...SPACE, path: "search.space.kind" }] },
      {
        title: "What it chooses",
        fields: [
          { path: "choose.top", label: "So many of the highest reward", node: TOP, help: "Leave it empty where you give budgets." },
          { path: "choose.latency_budgets_ms", label: "Or the best within each latency", unit: "ms", node: BUDGETS, help: "One budget a line." },
          { path: "choose.latency_budgets_ratio", label: "Or within each share of the teacher's", node: BUDGETS, help: "Of its latency, such as 0.5; one a line." },
          goal("search."),
          ...episodes("search."),
        ],
      },
      { title: "Who proposes", variant: strategy("search.") },
      { title: "What the student learns", variant: objective("search.") },
      { title: "How long each student learns", fields: length("distillation.") },
      {
        title: "How they are scored",
        fields: [
          ...scoring(suites, "evaluation."),
          { path: "baselines.random", label: "Random picks beside", help: "States of the space that are distilled just as well, to see what searching is worth." },
          { path: "baselines.undistilled", label: "Score every student undistilled, too", help: "As it starts: what distilling it was worth. A fine-tuning more for each." },
          { path: "baselines.smallest_cuts", label: "Score the smallest cuts of the teacher", help: "For each student the teacher with its lowest layers alone, the fewest with which it is not faster." },
          { path: "evaluation.teacher", label: "Score the teacher too" },
        ],
      },
      {
        title: "Once more for each task",
        fields: [
          { path: "task_distill.method", label: "Method", empty: "not at all", help: "What the search chose is distilled once more for each classification and regression, on a teacher that has learned it; the report has both rows." },
          { path: "task_distill.epochs", label: "Passes with the teacher", help: "As published 20, of CoLA 50." },
          { path: "task_distill.finetune_epochs", label: "Passes on the labels alone", help: "As published 10." },
          { path: "task_distill.max_steps", label: "At most so many steps", help: "In each of the two stages; without a number as many as a fine-tuning." },
        ],
      },
    ],
    advanced: [
      { title: "Once more for each task", path: "task_distill" },
      { title: "Choice", path: "choose" },
      { title: "Baselines", path: "baselines" },
      { title: "Reward", path: "search.reward" },
      { title: "Limits of the search", path: "search.limits" },
      ...SEARCH,
      { title: "Repeatability of the search", path: "search" },
      { title: "Full distillation", path: "distillation" },
      { title: "Student in the full distillation", path: "distillation.student" },
      { title: "Training of the full distillation", path: "distillation.training" },
      { title: "Fine-tuning", path: "evaluation" },
    ],
  });
  nameTasks(form, suites, "evaluation.");
  offerPresets(form, spec, presets, { part: "pipeline", prefix: "search." });
  if (!form.elements.namedItem("evaluation.suite").value) spec.set("evaluation.suite", "glue");
});
