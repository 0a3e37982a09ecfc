// The form that asks for distillations for a task.

import { NAME, OWN_LABELS, formPage, goTo, teacher } from "../fields.js";
import { SpecForm } from "../form.js";

const query = new URLSearchParams(location.search);
const COUNT = { type: "integer", minimum: 1, maximum: 1000, default: 1 };

/** What may stand in a list of words. */
const wordsOf = (schema, name) => schema.properties[name].items.enum;

formPage(["/schemas/task-distillation"], (form, schema) => {
  const spec = new SpecForm(form, schema, {
    path: "/task-distillations",
    submit: "Distil",
    done: goTo("/task-distillations"),
    hidden: ["teacher.fingerprint", "own.name"],
    labels: OWN_LABELS,
    main: [
      {
        title: "The task",
        fields: [
          { path: "task", label: "Task", node: { type: "string", minLength: 1, maxLength: 100, example: "RTE" }, help: "CoLA, MNLI, MRPC, QNLI, QQP, RTE, SST-2, STS-B or another that is known, or a name for one of your own." },
          { path: "data_dir", label: "Data folder", help: "Below the data roots, with the task's files as they are published; of a task of your own its file. Without one the data set of the Hugging Face hub is taken." },
          NAME,
        ],
      },
      {
        title: "Who learns from whom",
        fields: [
          { ...teacher(), help: "An encoder: minilm, a hub id such as bert-base-uncased, or a folder below the data roots. It learns the task first, unless it has a head for its labels." },
          { path: "student", label: "Student", help: "first-layers:4 or layers:1,3,5 of the teacher, bilstm, gated-cnn, an architecture such as 4,12,576,768,gelu, the folder of a student that was distilled before, or distillation: and the name of the distillation that made it." },
          { path: "output", label: "Folder", help: "Where the best student goes, below the data roots; of several methods a folder each. Without one they stay with the runs." },
        ],
      },
      {
        title: "How it learns",
        fields: [
          { path: "methods", label: "Methods", wide: true, node: schema.properties.methods, help: `One a line or with commas between, among ${wordsOf(schema, "methods").join(", ")}.` },
          { path: "seeds", label: "Seeds", node: { anyOf: [COUNT, schema.properties.seeds], default: COUNT.default }, help: "Runs of each method; scores are their mean. 5 stands for 0 to 4; 0,4 are those two." },
          { path: "max_steps", label: "At most so many steps", help: "In each of the two stages, for trying. Without a number as many as published." },
          { path: "epochs", label: "Passes with the teacher" },
          { path: "finetune_epochs", label: "Passes on the labels alone" },
        ],
      },
    ],
    advanced: [
      { title: "Training", path: "" },
      { title: "Grid: filled in, it chooses batch size, rate and beta of each method", path: "grid" },
      { title: "A task of your own", path: "own" },
      { title: "How the teacher learns the task", path: "teacher" },
    ],
  });
  for (const name of ["task", "student", "data_dir"]) if (query.has(name)) spec.set(name, query.get(name));
  if (query.has("teacher")) spec.set("teacher.ref", query.get("teacher"));
});
