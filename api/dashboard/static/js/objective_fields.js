// The part of a form that says what the student learns. The schema has the words of each objective.

/** @type {import("./form.js").Variant} */
export const OBJECTIVE = {
  path: "objective",
  chooser: { label: "Objective", help: "What the student learns to imitate." },
};
