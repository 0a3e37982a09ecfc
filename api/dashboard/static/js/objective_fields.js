// The part of a form that says what the student learns, with the settings of each objective.

/** @type {import("./form.js").Variant} */
export const OBJECTIVE = {
  path: "objective",
  initial: "hs",
  chooser: { label: "Objective", help: "What the student learns to imitate: hs is the teacher's hidden states." },
  fields: {
    mapping: { label: "Layer mapping", help: "Which of the teacher's layers each layer of the student learns from." },
    last_weight: { label: "Weight of the last layers", help: "Of their hidden states, which are what is read of a student; all others have 1." },
    hs_share: { label: "Share of the first stage", help: "Of the steps; the rest learns from output distributions." },
    od_rate: { label: "Learning rate of the second stage", help: "As a share of the first stage's." },
    relations: { label: "Relations", help: "Of queries, keys and values: qq, qk … vv, one a line." },
    relation_heads: { label: "Relation heads", help: "Into how many heads queries, keys and values are split." },
    teacher_layer: { label: "Teacher layer", help: "A number, auto by the teacher's depth, or search: short trials of its upper half." },
    trial_steps: { label: "Steps of a trial", help: "Only with teacher layer search." },
    orthogonal: { label: "Orthogonal", help: "Keep the projections orthogonal." },
    fit_lm_head: { label: "Fit a masked-LM head", unit: "steps", help: "For a teacher that has none, such as minilm; its encoder stays as it is." },
    temperature: { label: "Temperature", help: "Of both output distributions." },
    positions: { label: "Positions", help: "Where the loss is taken: masked tokens, or all." },
  },
};
