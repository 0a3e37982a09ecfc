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

/** The points with one of no number before the second stage, where a line then ends. */
function apart(points) {
  const second = points.findIndex(({ stage }, i) => i > 0 && stage !== points[i - 1].stage);
  if (second < 0) return points;
  const gap = { ...points[second], loss: null, held_out: null, gap: true };
  return [...points.slice(0, second), gap, ...points.slice(second)];
}

/**
 * A chart of one entry of the points.
 *
 * @param {object[]} drawn of `drawnOf`
 * @param {string} key `loss` or `held_out`
 * @param {object} looks `axis` in words, `scale` of the numbers, `digits` of them; `broken` where
 *   stages have numbers of their own, which no line joins
 */
export function curvesChart(drawn, key, { axis, scale = 1, digits = 3, broken = false }) {
  if (!drawn.length) return { empty: "The curves begin with the first run that is done." };
  const first = Math.max(...drawn.map(({ points }) => points.filter(({ stage }) => stage === 1).length));
  // Those that begin with the second stage have their place where the others have theirs.
  const places = (points) => {
    const begin = points.some(({ stage }) => stage === 1) ? 1 : first + 1;
    return points.map((_, i) => begin + points.slice(0, i).filter(({ gap }) => !gap).length);
  };
  const traces = drawn.map(({ name, points: learned }, index) => {
    const line = lineOf(index);
    const points = broken ? apart(learned) : learned;
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
