// The form that starts a full distillation, of a search's architecture or of any.

import { el } from "../dom.js";
import { NAME, formPage, goTo, length, objective, teacher, text } from "../fields.js";
import { SpecForm } from "../form.js";

const query = new URLSearchParams(location.search);
const given = query.get("search");

/** What a distillation takes over from its search. */
const INHERITED = ["teacher", "corpus", "objective", "student"];

formPage(["/schemas/distillation", ...(given ? [`/searches/${encodeURIComponent(given)}`] : [])], (form, schema, search = null) => {
  const own = (...parts) => (search ? [] : parts); // what no search has said
  const spec = new SpecForm(form, schema, {
    path: "/distillations",
    submit: "Start the distillation",
    extra: search ? { search: search.id } : {},
    done: goTo("/distillations"),
    hidden: ["teacher.fingerprint", "corpus.fingerprint", "training.address", "objective", ...(search ? INHERITED : [])],
    labels: { "student.init": "Start" },
    main: [
      {
        title: "The student",
        fields: [
          { path: "architecture", label: "Architecture", node: { type: "string", minLength: 9 }, help: "layers, heads, hidden size, inner size, activation: 4,12,576,768,gelu" },
          NAME,
          { path: "output", label: "Folder", help: "Where the finished model goes, below the data roots. Without one it goes to the models of the service." },
        ],
      },
      ...own({ title: "What is learned from what", fields: [teacher(), text()] }, { title: "What the student learns", variant: objective() }),
      { title: "How long it learns", fields: length("", " 0 makes the student as it starts, undistilled.") },
    ],
    advanced: [
      { title: "Training", path: "training" },
      ...own({ title: "Student", path: "student" }, { title: "Text", path: "corpus" }, { title: "Teacher", path: "teacher" }),
    ],
  });
  if (query.has("architecture")) spec.set("architecture", query.get("architecture"));
  if (!search) return;
  const said = `: teacher ${search.spec.teacher.ref}, text ${search.spec.corpus.source.join(", ")}, objective ${search.spec.objective.name}.`;
  form.prepend(el("p", { class: "notice" }, "As in the search ", el("a", { href: `/searches/${search.id}` }, search.name), said));
});
