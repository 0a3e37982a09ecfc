// The form that launches a pipeline.

import { get } from "../api.js";
import { byId, el, problem, show } from "../dom.js";
import { SpecForm } from "../form.js";
import { OBJECTIVE } from "../objective_fields.js";

const form = byId("form");
const chooser = byId("preset");
const OBJECTIVE_NAME = "search.objective.name";
const TOP = { type: "integer", minimum: 1, maximum: 50, default: 3 };
const SEEDS = { type: "integer", minimum: 1, maximum: 100, default: 3 };
const BUDGETS = { type: "array", items: { type: "number", exclusiveMinimum: 0 } };

async function begin() {
  let schema;
  let suites;
  let presets;
  try {
    [schema, { items: suites }, { items: presets }] = await Promise.all([
      get("/schemas/pipeline"), get("/evaluations/suites"), get("/presets"),
    ]);
  } catch (error) {
    show(form, problem(error, begin));
    return;
  }
  const spec = new SpecForm(form, schema, {
    path: "/pipelines",
    submit: "Launch the pipeline",
    done: (made) => location.assign(`/pipelines/${encodeURIComponent(made.id)}`),
    hidden: [
      "search.name", "search.teacher.fingerprint", "search.corpus.fingerprint", "search.backend.address",
      "search.objective", "distillation.objective", "distillation.training.address",
    ],
    labels: { "search.backend.name": "Backend", "search.student.init": "Start", "distillation.student.init": "Start" },
    main: [
      {
        title: "What is learned from what",
        fields: [
          { path: "name", help: "Letters, digits, points and lines. Without one it is given a pleasant name." },
          { path: "search.teacher.ref", label: "Teacher", help: "An encoder: minilm, a hub id such as bert-base-uncased, or a folder below the data roots." },
          { path: "search.corpus.source", label: "Text", wide: true, help: "pydocs, hub:owner/name, or files and folders below the data roots; one a line." },
        ],
      },
      {
        title: "What it chooses",
        fields: [
          { path: "choose.top", label: "So many of the highest reward", node: TOP, help: "Leave it empty where you give budgets." },
          { path: "choose.latency_budgets_ms", label: "Or the best within each latency", unit: "ms", node: BUDGETS, help: "One budget a line." },
          { path: "choose.latency_budgets_ratio", label: "Or within each share of the teacher's", node: BUDGETS, help: "Of its latency, such as 0.5; one a line." },
          { path: "search.controller.episodes", label: "Episodes", help: "Rounds of proposing, training and learning." },
          { path: "search.controller.candidates", label: "Candidates an episode", help: "Students trained in each round." },
        ],
      },
      { title: "What the student learns", variant: { ...OBJECTIVE, path: "search.objective" } },
      {
        title: "How long each student learns",
        fields: [
          { path: "distillation.training.steps", label: "Steps", help: "Optimiser steps; without a number the passes over the text decide." },
          { path: "distillation.training.epochs", label: "Passes over the text" },
          { path: "distillation.training.batch_size", label: "Batch", unit: "sequences" },
          { path: "distillation.training.learning_rate", label: "Learning rate" },
        ],
      },
      {
        title: "How they are scored",
        fields: [
          { path: "evaluation.suite", label: "Suite", choices: suites.map(({ suite }) => suite), node: { type: "string", minLength: 1 }, help: "A collection of tasks." },
          { path: "evaluation.seeds", label: "Seeds", node: SEEDS, help: "Fine-tunings of each task; the score is their mean." },
          { path: "evaluation.tasks", label: "Tasks", wide: true, help: "One a line." },
          { path: "evaluation.data_dir", label: "Data folder", help: "Below the data roots, with the tasks' files as they are published. Without one the data sets of the Hugging Face hub are taken." },
          { path: "evaluation.max_steps", label: "At most so many steps", help: "Of each fine-tuning. Without a number as many as published." },
          { path: "baselines.random", label: "Random picks beside", help: "States of the space that are distilled just as well, to see what searching is worth." },
          { path: "baselines.undistilled", label: "Score every student undistilled, too", help: "As it starts: what distilling it was worth. A fine-tuning more for each." },
          { path: "baselines.smallest_cuts", label: "Score the smallest cuts of the teacher", help: "For each student the teacher with its lowest layers alone, the fewest with which it is not faster." },
          { path: "evaluation.teacher", label: "Score the teacher too" },
        ],
      },
    ],
    advanced: [
      { title: "Choice", path: "choose" },
      { title: "Baselines", path: "baselines" },
      { title: "Search space", path: "search.space" },
      { title: "Reward", path: "search.reward" },
      { title: "Limits of the search", path: "search.limits" },
      { title: "Controller", path: "search.controller" },
      { title: "Short training of a candidate", path: "search.proxy" },
      { title: "Student in the search", path: "search.student" },
      { title: "Latency", path: "search.latency" },
      { title: "Workers", path: "search.backend" },
      { title: "Text", path: "search.corpus" },
      { title: "Teacher", path: "search.teacher" },
      { title: "Repeatability of the search", path: "search" },
      { title: "Full distillation", path: "distillation" },
      { title: "Student in the full distillation", path: "distillation.student" },
      { title: "Training of the full distillation", path: "distillation.training" },
      { title: "Fine-tuning", path: "evaluation" },
    ],
  });
  helpWithTasks(suites);
  offerPresets(spec, presets);
  if (!form.elements.namedItem("evaluation.suite").value) spec.set("evaluation.suite", "glue");
}

function helpWithTasks(suites) {
  const suite = form.elements.namedItem("evaluation.suite");
  suite.addEventListener("input", () => {
    const { tasks } = suites.find((one) => one.suite === suite.value) ?? { tasks: [] };
    byId("f-evaluation-tasks-help").textContent = `One a line, among ${tasks.join(", ")}. Without any, all that have data.`;
  });
}

/** Let a preset fill the fields; what has no field goes along in the body. */
function offerPresets(spec, presets) {
  const options = presets.map(({ name }) => el("option", { value: name }, `the preset ${name}`));
  show(chooser, el("option", { value: "" }, "the defaults"), options);
  byId("presets").hidden = false;
  const objective = () => form.elements.namedItem(OBJECTIVE_NAME).value;
  const wanted = () => (chooser.value ? `${chooser.value} ${objective()}` : "");
  const values = async () => {
    if (!chooser.value) return [];
    const { items } = await get("/presets", objective() ? { objective: objective() } : {});
    const { pipeline } = items.find(({ name }) => name === chooser.value);
    return leaves(pipeline).filter(([path]) => path !== OBJECTIVE_NAME);
  };
  chooser.value = history.state?.preset ?? ""; // its values come back with the form's
  let filled = history.state?.presetOf ?? "";
  let paths = history.state?.presetPaths ?? [];
  const fill = async () => {
    const now = wanted();
    if (now === filled) return; // as where the browser goes back to it
    const found = await values();
    if (now !== wanted()) return; // chosen anew meanwhile
    for (const path of paths) spec.set(path, "");
    const extra = {};
    for (const [path, value] of found) {
      if (!spec.set(path, asTyped(path, value))) put(extra, path, value);
    }
    spec.extend(extra);
    show(byId("preset-problem"));
    filled = now;
    paths = found.map(([path]) => path);
    const kept = { preset: chooser.value, presetOf: filled, presetPaths: paths };
    history.replaceState({ ...history.state, ...kept }, "");
  };
  const tell = () => fill().catch((error) => show(byId("preset-problem"), problem(error, tell)));
  chooser.addEventListener("change", tell);
  // Rates go with what is learned. The fields of another objective are there before this is called.
  form.elements.namedItem(OBJECTIVE_NAME).addEventListener("change", tell);
}

/** Paths and values of everything in a body that is no mapping. */
function leaves(node, path = "") {
  return Object.entries(node).flatMap(([name, value]) => {
    const whole = path ? `${path}.${name}` : name;
    const isMapping = value !== null && typeof value === "object" && !Array.isArray(value);
    return isMapping ? leaves(value, whole) : [[whole, value]];
  });
}

function put(body, path, value) {
  const names = path.split(".");
  const last = names.pop();
  let place = body;
  for (const name of names) place = place[name] ??= {};
  place[last] = value;
}

function asTyped(path, value) {
  if (path === "evaluation.seeds") return String(value.length);
  return Array.isArray(value) ? value.join("\n") : String(value ?? "");
}

begin();
