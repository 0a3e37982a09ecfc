// The form that starts a search.

import { NAME, SPACE, episodes, folded, formPage, goTo, goal, objective, strategy, teacher, text } from "../fields.js";
import { SpecForm } from "../form.js";
import { offerPresets } from "../presets.js";

formPage(["/schemas/search", "/presets"], (form, schema, { items: presets }) => {
  const spec = new SpecForm(form, schema, {
    path: "/searches",
    submit: "Start the search",
    done: goTo("/searches"),
    hidden: ["teacher.fingerprint", "corpus.fingerprint", "backend.address", "objective"],
    labels: { "backend.name": "Backend", "student.init": "Start" },
    main: [
      { title: "What is learned from what", fields: [NAME, teacher(), text()] },
      {
        title: "How far it looks",
        fields: [
          SPACE,
          ...episodes(),
          { path: "proxy.fraction", label: "Share of the text", help: "Of the training text that a candidate learns from." },
          { path: "proxy.epochs", label: "Passes over it", help: "How often a candidate sees that share." },
          { path: "proxy.rungs", label: "Rungs", help: "Read losses after these steps, such as 0,30, and end trainings there that promise too little." },
          { path: "proxy.keep", label: "Keep", help: "With rungs: go on with what may be one of so many best." },
        ],
      },
      { title: "Who proposes", variant: strategy() },
      { title: "What the student learns", variant: objective() },
      {
        title: "What is best",
        fields: [
          goal(),
          { path: "reward.latency_price", label: "Price of latency", help: "With 0.1 a student that takes twice as long must explain ten per cent more of the signal." },
          { path: "reward.beta", label: "Target latency β", unit: "share of the teacher's", help: "A student at this share of the teacher's latency is neither paid nor charged for it." },
          { path: "limits.max_latency_ratio", label: "Never slower than", unit: "share of the teacher's", help: "Slower architectures are not tried at all." },
          { path: "limits.max_latency_ms", label: "Never slower than", unit: "ms", help: "The same as a time." },
          { path: "limits.max_hours", label: "End after", unit: "hours", help: "The search then pauses in good order." },
        ],
      },
    ],
    advanced: [{ title: "Reward", path: "reward" }, { title: "Limits", path: "limits" }, ...folded(), { title: "Repeatability", path: "" }],
  });
  offerPresets(form, spec, presets, { part: "search" });
});
