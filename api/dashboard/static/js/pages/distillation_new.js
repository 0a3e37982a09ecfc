// The form that starts a full distillation, of a search's architecture or of any.

import { get } from "../api.js";
import { byId, el, problem, show } from "../dom.js";
import { SpecForm } from "../form.js";
import { OBJECTIVE } from "../objective_fields.js";

const form = byId("form");
const query = new URLSearchParams(location.search);

/** What a distillation takes over from its search. */
const INHERITED = ["teacher", "corpus", "objective", "student"];

async function begin() {
  let schema;
  let search = null;
  try {
    schema = await get("/schemas/distillation");
    if (query.has("search")) search = await get(`/searches/${encodeURIComponent(query.get("search"))}`);
  } catch (error) {
    show(form, problem(error, begin));
    return;
  }
  const source = {
    title: "What is learned from what",
    fields: [
      { path: "teacher.ref", label: "Teacher", help: "An encoder: minilm, a hub id such as bert-base-uncased, or a folder below the data roots." },
      { path: "corpus.source", label: "Text", wide: true, help: "pydocs, hub:owner/name, or files and folders below the data roots; one a line." },
    ],
  };
  const spec = new SpecForm(form, schema, {
    path: "/distillations",
    submit: "Start the distillation",
    extra: search ? { search: search.id } : {},
    done: (made) => location.assign(`/distillations/${encodeURIComponent(made.id)}`),
    hidden: [
      "teacher.fingerprint", "corpus.fingerprint", "training.address", "objective",
      ...(search ? INHERITED : []),
    ],
    labels: { "student.init": "Start" },
    main: [
      {
        title: "The student",
        fields: [
          { path: "architecture", label: "Architecture", node: { type: "string", minLength: 9 }, help: "layers, heads, hidden size, inner size, activation: 4,12,576,768,gelu" },
          { path: "name", help: "Letters, digits, points and lines. Without one it is given a pleasant name." },
          { path: "output", label: "Folder", help: "Where the finished model goes, below the data roots. Without one it goes to the models of the service." },
        ],
      },
      ...(search ? [] : [source, { title: "What the student learns", variant: OBJECTIVE }]),
      {
        title: "How long it learns",
        fields: [
          { path: "training.steps", label: "Steps", help: "Optimiser steps; without a number the passes over the text decide. 0 makes the student as it starts, undistilled." },
          { path: "training.epochs", label: "Passes over the text" },
          { path: "training.batch_size", label: "Batch", unit: "sequences" },
          { path: "training.learning_rate", label: "Learning rate" },
        ],
      },
    ],
    advanced: [
      { title: "Training", path: "training" },
      ...(search ? [] : [
        { title: "Student", path: "student" },
        { title: "Text", path: "corpus" },
        { title: "Teacher", path: "teacher" },
      ]),
    ],
  });
  if (query.has("architecture")) spec.set("architecture", query.get("architecture"));
  if (search) {
    const { teacher, corpus, objective } = search.spec;
    form.prepend(
      el(
        "p",
        { class: "notice" },
        "As in the search ", el("a", { href: `/searches/${search.id}` }, search.name),
        `: teacher ${teacher.ref}, text ${corpus.source.join(", ")}, objective ${objective.name}.`,
      ),
    );
  }
}

begin();
