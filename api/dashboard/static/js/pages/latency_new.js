// The form that asks for a latency table.

import { SPACE, formPage, teacher } from "../fields.js";
import { SpecForm } from "../form.js";

// A table is asked for in the words of a search.
formPage(["/schemas/search"], (form, schema) => {
  new SpecForm(form, schema, {
    path: "/latency-tables",
    submit: "Measure",
    done: () => location.assign("/latency"),
    hidden: ["teacher.fingerprint"],
    main: [
      { title: "Of which students", fields: [teacher(), SPACE] },
      {
        title: "Under which conditions",
        fields: [
          { path: "latency.length", label: "Length", unit: "tokens", help: "Of the one sequence that a model reads." },
          { path: "latency.threads", label: "Threads" },
          { path: "latency.budget_seconds", label: "Time to spend", unit: "seconds", help: "The more, the more exact." },
        ],
      },
    ],
    advanced: [{ title: "Latency", path: "latency" }, { title: "Teacher", path: "teacher" }],
  });
});
