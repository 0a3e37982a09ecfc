// The form that asks for evaluations of a model.

import { OWN_LABELS, formPage, nameTasks, scoring } from "../fields.js";
import { SpecForm } from "../form.js";

const query = new URLSearchParams(location.search);
const MODEL = {
  path: "model.ref", label: "Model", wide: true, help: "minilm, a hub id such as bert-base-uncased, a folder below the data roots, or distillation: and the name of a finished distillation.",
};

formPage(["/schemas/evaluation", "/evaluations/suites"], (form, schema, { items }) => {
  const suites = [...items, { suite: "own", tasks: [] }];
  const spec = new SpecForm(form, schema, {
    path: "/evaluations",
    submit: "Start the evaluation",
    done: ({ items: [{ model, suite }] }) => location.assign(`/evaluations?${new URLSearchParams({ model, suite })}`),
    hidden: ["model"],
    main: [{ title: "What is evaluated", fields: [MODEL, ...scoring(suites)] }],
    labels: { ...OWN_LABELS, "columns.word": "Column of the words", "columns.tag": "Column of the tags" },
    advanced: [
      { title: "Fine-tuning", path: "" },
      { title: "A task of your own: the suite own, whose file is the data folder", path: "own" },
      { title: "Columns of words and tags: of the suite ner, or a task of your own that tags words", path: "columns" },
      { title: "Grid: filled in, it chooses learning rate and epochs", path: "grid" },
      { title: "Latency", path: "latency" },
    ],
  });
  nameTasks(form, suites);
  spec.set("suite", query.get("suite") ?? "glue");
  if (query.has("model")) spec.set("model.ref", query.get("model"));
});
