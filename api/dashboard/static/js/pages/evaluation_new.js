// The form that asks for evaluations of a model.

import { formPage, nameTasks, scoring } from "../fields.js";
import { SpecForm } from "../form.js";

const query = new URLSearchParams(location.search);
const MODEL = {
  path: "model.ref", label: "Model", wide: true, help: "minilm, a hub id such as bert-base-uncased, a folder below the data roots, or distillation: and the name of a finished distillation.",
};

formPage(["/schemas/evaluation", "/evaluations/suites"], (form, schema, { items: suites }) => {
  const spec = new SpecForm(form, schema, {
    path: "/evaluations",
    submit: "Start the evaluation",
    done: ({ items: [{ model, suite }] }) => location.assign(`/evaluations?${new URLSearchParams({ model, suite })}`),
    hidden: ["model"],
    main: [{ title: "What is evaluated", fields: [MODEL, ...scoring(suites)] }],
    advanced: [{ title: "Fine-tuning", path: "" }],
  });
  nameTasks(form, suites);
  spec.set("suite", query.get("suite") ?? "glue");
  if (query.has("model")) spec.set("model.ref", query.get("model"));
});
