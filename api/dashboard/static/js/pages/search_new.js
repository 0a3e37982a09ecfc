// The form that starts a search.

import { get } from "../api.js";
import { byId, problem, show } from "../dom.js";
import { SpecForm } from "../form.js";
import { OBJECTIVE } from "../objective_fields.js";

const form = byId("form");

async function begin() {
  let schema;
  try {
    schema = await get("/schemas/search");
  } catch (error) {
    show(form, problem(error, begin));
    return;
  }
  new SpecForm(form, schema, {
    path: "/searches",
    submit: "Start the search",
    done: (search) => location.assign(`/searches/${encodeURIComponent(search.id)}`),
    hidden: ["teacher.fingerprint", "corpus.fingerprint", "backend.address", "objective"],
    labels: { "backend.name": "Backend", "student.init": "Start" },
    main: [
      {
        title: "What is learned from what",
        fields: [
          { path: "name", help: "Letters, digits, points and lines. Without one it is given a pleasant name." },
          { path: "teacher.ref", label: "Teacher", help: "An encoder: minilm, a hub id such as bert-base-uncased, or a folder below the data roots." },
          { path: "corpus.source", label: "Text", wide: true, help: "pydocs, hub:owner/name, or files and folders below the data roots; one a line." },
        ],
      },
      {
        title: "How far it looks",
        fields: [
          { path: "space.kind", label: "Search space", choices: ["scaled", "paper"], help: "The paper's 2400 architectures, or the same proportions scaled to the teacher." },
          { path: "controller.episodes", label: "Episodes", help: "Rounds of proposing, training and learning." },
          { path: "controller.candidates", label: "Candidates an episode", help: "Students trained in each round." },
          { path: "proxy.fraction", label: "Share of the text", help: "Of the training text that a candidate learns from." },
          { path: "proxy.epochs", label: "Passes over it", help: "How often a candidate sees that share." },
        ],
      },
      { title: "What the student learns", variant: OBJECTIVE },
      {
        title: "What is best",
        fields: [
          { path: "reward.latency_price", label: "Price of latency", help: "Share of explained signal that a doubling of latency must buy." },
          { path: "reward.beta", label: "Target latency β", unit: "share of the teacher's", help: "A student at this share of the teacher's latency is neither paid nor charged for it." },
          { path: "limits.max_latency_ms", label: "Never slower than", unit: "ms", help: "Slower architectures are not tried at all." },
          { path: "limits.max_hours", label: "End after", unit: "hours", help: "The search then pauses in good order." },
        ],
      },
    ],
    advanced: [
      { title: "Reward", path: "reward" },
      { title: "Limits", path: "limits" },
      { title: "Controller", path: "controller" },
      { title: "Short training of a candidate", path: "proxy" },
      { title: "Student", path: "student" },
      { title: "Latency", path: "latency" },
      { title: "Workers", path: "backend" },
      { title: "Text", path: "corpus" },
      { title: "Teacher", path: "teacher" },
      { title: "Repeatability", path: "" },
    ],
  });
}

begin();
