// Fields that the forms share. What a form asks for lies in its request at the top or, in a pipeline,
// below `prefix`, which ends with a point.

import { get } from "./api.js";
import { byId, problem, show } from "./dom.js";

const SEEDS = { type: "integer", minimum: 1, maximum: 1000, default: 3 };

export const NAME = { path: "name", help: "Letters and digits of any script, and any of . _ -. Without one it is given a pleasant name." };

export const teacher = (prefix = "") => ({
  path: `${prefix}teacher.ref`, label: "Teacher", help: "An encoder: minilm, a hub id such as bert-base-uncased, or a folder below the data roots.",
});

export const text = (prefix = "") => ({
  path: `${prefix}corpus.source`, label: "Text", wide: true, help: "pydocs, hub:owner/name, or files and folders below the data roots; one a line.",
});

export const SPACE = {
  path: "space.kind", label: "Search space", choices: ["scaled", "paper"], help: "The paper's 2400 architectures, or the same proportions scaled to the teacher.",
};

const GOALS = {
  reward: "reward: the highest reward",
  limit: "limit: the lowest loss within the limits",
  front: "front: low losses at every latency",
};

export const goal = (prefix = "") => ({
  path: `${prefix}goal`, wide: true, words: GOALS,
  help: "Take the reward if you have a price for latency, a limit if you have a latency in mind, and the front to choose later. The price and the target are of the reward; a limit holds with any goal.",
});

export const episodes = (prefix = "") => [
  { path: `${prefix}controller.episodes`, label: "Episodes", help: "Rounds of proposing, training and learning." },
  { path: `${prefix}controller.candidates`, label: "Candidates an episode", help: "Students trained in each round." },
];

/**
 * What the student learns. The schema has the words of each objective.
 *
 * @returns {import("./form.js").Variant}
 */
export const objective = (prefix = "") => ({
  path: `${prefix}objective`,
  chooser: { label: "Objective", help: "What the student learns to imitate." },
});

/**
 * Who proposes candidates. The schema has the words of each strategy.
 *
 * @returns {import("./form.js").Variant}
 */
export const strategy = (prefix = "") => ({
  path: `${prefix}controller.strategy`,
  chooser: { label: "Strategy", help: "Who proposes the students of each episode." },
  own: { label: "Its class", help: "Where the service can import it, if that was started with KDNAS_ALLOW_CUSTOM_CODE=1." },
});

/** How long a full distillation is; `more` is said of the steps. */
export const length = (prefix = "", more = "") => [
  { path: `${prefix}training.steps`, label: "Steps", help: `Optimiser steps; without a number the passes over the text decide.${more}` },
  { path: `${prefix}training.epochs`, label: "Passes over the text" },
  { path: `${prefix}training.batch_size`, label: "Batch", unit: "sequences" },
  { path: `${prefix}training.learning_rate`, label: "Learning rate" },
];

/** How models are scored, over one of the suites. */
export const scoring = (suites, prefix = "") => [
  { path: `${prefix}suite`, choices: suites.map(({ suite }) => suite), words: { own: "own: a task of your own" }, node: { type: "string", minLength: 1 }, help: "A collection of tasks." },
  { path: `${prefix}seeds`, label: "Seeds", node: SEEDS, help: "Fine-tunings of each task; the score is their mean." },
  { path: `${prefix}tasks`, wide: true, help: "One a line." },
  { path: `${prefix}data_dir`, label: "Data folder", help: "Below the data roots, with the tasks' files as they are published; of a task of your own its file. Without one the data sets of the Hugging Face hub are taken." },
  { path: `${prefix}max_steps`, label: "At most so many steps", help: "Of each fine-tuning. Without a number as many as published." },
];

/** What the fields of a user's own task are called. */
export const OWN_LABELS = { "own.name": "Name", "own.kind": "Kind", "own.text": "Column of the text", "own.pair": "Column of a second text", "own.label": "Column of the label", "own.metrics": "Metrics" };

/** Name the tasks of the chosen suite beside their field. */
export function nameTasks(form, suites, prefix = "") {
  const suite = form.elements.namedItem(`${prefix}suite`);
  suite.addEventListener("input", () => {
    const { tasks } = suites.find((one) => one.suite === suite.value) ?? { tasks: [] };
    const among = `One a line, among ${tasks.join(", ")}. Without any, all that have data.`;
    byId(`f-${prefix.replace(".", "-")}tasks-help`).textContent = tasks.length ? among : "None: the suite is your own task.";
  });
}

/** Parts of a search that are folded away. */
export const folded = (prefix = "") =>
  [
    ["Short training of a candidate", "proxy"], ["Student", "student"], ["Latency", "latency"],
    ["Workers", "backend"], ["Text", "corpus"], ["Teacher", "teacher"],
  ].map(([title, path]) => ({ title, path: prefix + path }));

/** Fill the page's form: `make` is given it and what was read from the paths. */
export async function formPage(paths, make) {
  const form = byId("form");
  let found;
  try {
    found = await Promise.all(paths.map((path) => get(path)));
  } catch (error) {
    show(form, problem(error, () => formPage(paths, make)));
    return;
  }
  make(form, ...found);
}

/** Go to the page of what was asked for. */
export const goTo = (path) => (made) => location.assign(`${path}/${encodeURIComponent(made.id)}`);
