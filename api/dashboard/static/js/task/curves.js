// Curves of both stages: of each method the mean over its seeds, or of one method each seed.

import { colour, curve, seriesColour } from "../charts.js";
import { fixed } from "../format.js";

const DASHES = ["solid", "dash", "dot"];

/** Lines that stay apart although there are more of them than colours. */
export const lineOf = (index) => ({ color: seriesColour(index), dash: DASHES[Math.floor(index / 4) % DASHES.length] });

const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);

/** What is drawn: `{name, points}`, a point `{stage, epoch, loss, held_out}` for each epoch in order. */
export function drawnOf(runs, method) {
  const trained = runs.filter(({ curve: points }) => points.length);
  if (method) return trained.filter((run) => run.method === method).map(({ seed, curve: points }) => ({ name: `seed ${seed}`, points }));
  return [...new Set(trained.map((run) => run.method))].map((name) => ({ name, points: meanOf(trained.filter((run) => run.method === name)) }));
}

function meanOf(runs) {
  const longest = runs.reduce((best, run) => (run.curve.length > best.length ? run.curve : best), []);
  return longest.map(({ stage, epoch }) => {
    const same = runs.flatMap((run) => run.curve.filter((one) => one.stage === stage && one.epoch === epoch));
    const of = (key) => mean(same.map((one) => one[key]).filter((value) => value !== null));
    return { stage, epoch, loss: of("loss"), held_out: of("held_out") };
  });
}

/**
 * A chart of one entry of the points.
 *
 * @param {object[]} drawn of `drawnOf`
 * @param {string} key `loss` or `held_out`
 * @param {object} looks `axis` in words, `scale` of the numbers, `digits` of them
 */
export function curvesChart(drawn, key, { axis, scale = 1, digits = 3 }) {
  if (!drawn.length) return { empty: "The curves begin with the first run that is done." };
  const first = Math.max(...drawn.map(({ points }) => points.filter(({ stage }) => stage === 1).length));
  // Those that begin with the second stage have their place where the others have theirs.
  const places = (points) => points.map((point, i) => (points.some(({ stage }) => stage === 1) ? i + 1 : first + i + 1));
  const traces = drawn.map(({ name, points }, index) => {
    const line = lineOf(index);
    return curve(name, places(points), points.map((point) => (point[key] === null ? null : scale * point[key])), line, {
      mode: "lines+markers",
      marker: { size: 6, color: line.color, symbol: points.map(({ stage }) => (stage === 1 ? "circle-open" : "circle")) },
      text: points.map((point) => `stage ${point.stage}, epoch ${point.epoch}: ${point[key] === null ? "–" : fixed(scale * point[key], digits)}`),
      hovertemplate: `%{text}<extra>${name}</extra>`,
    });
  });
  const longest = Math.max(...traces.flatMap(({ x }) => x));
  const border = first
    ? [{ type: "line", x0: first + 0.5, x1: first + 0.5, yref: "paper", y0: 0, y1: 1, line: { color: colour("line-strong"), width: 1, dash: "dot" } }]
    : [];
  return {
    traces,
    layout: { xaxis: { title: { text: "epoch" }, ...(longest <= 10 && { dtick: 1 }) }, yaxis: { title: { text: axis } }, shapes: border },
    label: `${axis} by epoch of ${drawn.map(({ name }) => name).join(", ")}`,
  };
}
