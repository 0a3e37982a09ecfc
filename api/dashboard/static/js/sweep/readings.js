// The readings of a sweep's table, and what can be said of them.

/**
 * States of a table in CSV: each with its latency, its size and, by step, the mean of its losses over seeds.
 *
 * Values are numbers and bare words, so that no cell is quoted but the heading.
 */
export function statesOf(csv) {
  const [heading, ...lines] = csv.trim().split("\n").map((line) => line.replaceAll('"', "").split(","));
  const place = Object.fromEntries(heading.map((name, i) => [name, i]));
  const figure = (cells, name) => (cells[place[name]] === "" ? null : Number(cells[place[name]]));
  const states = new Map();
  for (const cells of lines) {
    const architecture = ["layers", "heads", "hidden", "intermediate", "activation"].map((axis) => cells[place[axis]]).join(",");
    if (!states.has(architecture)) {
      const of = (name) => figure(cells, name);
      states.set(architecture, { architecture, latency_ms: of("latency_ms"), params_millions: of("params_millions"), teacher_ms: of("teacher_ms"), read: new Map() });
    }
    const { read } = states.get(architecture);
    const step = figure(cells, "step");
    read.set(step, [...(read.get(step) ?? []), figure(cells, "loss")]);
  }
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  return [...states.values()].map(({ read, ...state }) => ({ ...state, losses: new Map([...read].map(([step, losses]) => [step, mean(losses)])) }));
}

/** The states that no other one beats in both latency and loss, the fastest first. */
export function frontOf(states, step) {
  const front = [];
  const byLatency = [...states].sort((a, b) => a.latency_ms - b.latency_ms || a.losses.get(step) - b.losses.get(step));
  for (const state of byLatency) {
    if (!front.length || state.losses.get(step) < front.at(-1).losses.get(step)) front.push(state);
  }
  return front;
}

/** Spearman's rank correlation; values that are the same share the mean of their ranks. */
export function rankCorrelation(first, second) {
  const [x, y] = [ranks(first), ranks(second)];
  const middle = (x.length + 1) / 2;
  const sum = (of) => x.reduce((total, _, i) => total + of(i), 0);
  const spread = (ranked) => Math.sqrt(sum((i) => (ranked[i] - middle) ** 2));
  return sum((i) => (x[i] - middle) * (y[i] - middle)) / (spread(x) * spread(y));
}

function ranks(values) {
  const order = values.map((_, i) => i).sort((a, b) => values[a] - values[b]);
  const ranked = new Array(values.length);
  for (let from = 0, to; from < order.length; from = to) {
    for (to = from; to < order.length && values[order[to]] === values[order[from]]; to++);
    for (let i = from; i < to; i++) ranked[order[i]] = (from + 1 + to) / 2;
  }
  return ranked;
}
