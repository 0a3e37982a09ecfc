// The form that asks for evaluations of a model.

import { get } from "../api.js";
import { byId, problem, show } from "../dom.js";
import { SpecForm } from "../form.js";

const form = byId("form");
const query = new URLSearchParams(location.search);
const SEEDS = { type: "integer", minimum: 1, maximum: 100, default: 3 };

async function begin() {
  let schema;
  let suites;
  try {
    [schema, { items: suites }] = await Promise.all([get("/schemas/evaluation"), get("/evaluations/suites")]);
  } catch (error) {
    show(form, problem(error, begin));
    return;
  }
  const spec = new SpecForm(form, schema, {
    path: "/evaluations",
    submit: "Start the evaluation",
    done: ({ items }) => {
      const { model, suite } = items[0];
      location.assign(`/evaluations?${new URLSearchParams({ model, suite })}`);
    },
    hidden: ["model"],
    main: [
      {
        title: "What is evaluated",
        fields: [
          { path: "model.ref", label: "Model", wide: true, help: "minilm, a hub id such as bert-base-uncased, a folder below the data roots, or distillation: and the name of a finished distillation." },
          { path: "suite", choices: suites.map(({ suite }) => suite), node: { type: "string", minLength: 1 }, help: "A collection of tasks." },
          { path: "seeds", label: "Seeds", node: SEEDS, help: "Fine-tunings of each task; the score is their mean." },
          { path: "tasks", wide: true, help: "One a line." },
          { path: "data_dir", label: "Data folder", help: "Below the data roots, with the tasks' files as they are published. Without one the data sets of the Hugging Face hub are taken." },
          { path: "max_steps", label: "At most so many steps", help: "Of each fine-tuning. Without a number as many as published." },
        ],
      },
    ],
    advanced: [{ title: "Fine-tuning", path: "" }],
  });
  const suite = form.elements.namedItem("suite");
  const showTasks = () => {
    const { tasks } = suites.find((one) => one.suite === suite.value) ?? { tasks: [] };
    byId("f-tasks-help").textContent = `One a line, among ${tasks.join(", ")}. Without any, all that have data.`;
  };
  suite.addEventListener("input", showTasks);
  spec.set("suite", query.get("suite") ?? "glue");
  if (query.has("model")) spec.set("model.ref", query.get("model"));
}

begin();
