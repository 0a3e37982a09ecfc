// The form that asks for a latency table.

import { get } from "../api.js";
import { byId, problem, show } from "../dom.js";
import { SpecForm } from "../form.js";

const form = byId("form");

async function begin() {
  let schema;
  try {
    schema = await get("/schemas/search"); // a table is asked for in the words of a search
  } catch (error) {
    show(form, problem(error, begin));
    return;
  }
  new SpecForm(form, schema, {
    path: "/latency-tables",
    submit: "Measure",
    done: () => location.assign("/latency"),
    hidden: ["teacher.fingerprint"],
    labels: {},
    main: [
      {
        title: "Of which students",
        fields: [
          { path: "teacher.ref", label: "Teacher", help: "An encoder: minilm, a hub id such as bert-base-uncased, or a folder below the data roots." },
          { path: "space.kind", label: "Search space", choices: ["scaled", "paper"], help: "The paper's 2400 architectures, or the same proportions scaled to the teacher." },
        ],
      },
      {
        title: "Under which conditions",
        fields: [
          { path: "latency.length", label: "Length", unit: "tokens", help: "Of the one sequence that a model reads." },
          { path: "latency.threads", label: "Threads" },
          { path: "latency.budget_seconds", label: "Time to spend", unit: "seconds", help: "The more, the more exact." },
        ],
      },
    ],
    advanced: [
      { title: "Latency", path: "latency" },
      { title: "Teacher", path: "teacher" },
    ],
  });
}

begin();
