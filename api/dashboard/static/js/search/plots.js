// The charts of a search.

import { Chart, colour, curve, faded } from "../charts.js";
import { capital, fixed, ms, whole } from "../format.js";
import { strategyOf } from "../parts.js";
import { figureName, figureOfReward, figuresSoFar, soFar } from "./found.js";

const lossOf = (point, loss) => point[`loss_${loss}`] ?? point.loss;

const hover = (point, loss) =>
  [
    point.architecture,
    `reward ${fixed(point.reward)}`,
    `loss ${fixed(lossOf(point, loss))}` + (point.loss_start == null ? "" : `, at the start ${fixed(point.loss_start)}`),
    ms(point.latency_ms),
  ].join("<br>");

// Colours of who proposes: of what several strategies have, and of a strategy's own names, mostly one.
const SHARED = { random: "series-2", size: "series-3", reading: "series-4" };
const OWN = ["series-1", "ink-soft", "series-dim"];

/**
 * Who proposed, each with a name and the colour that it has in every chart: a search has one strategy,
 * and beside it those that strategies share. Later ones lie above: there are more random picks, and
 * they say less.
 */
function sourcesOf(found) {
  const known = [...new Set(found)].sort((a, b) => (b === "random") - (a === "random") || a.localeCompare(b));
  const own = known.filter((source) => !(source in SHARED));
  const tint = (source) => colour(SHARED[source] ?? OWN[own.indexOf(source) % OWN.length]);
  return known.map((source) => ({ source, name: `${source} picks`, tint: tint(source) }));
}

/** Points of architectures that can be chosen, each with what is said where one points at it. */
const marks = (name, own, loss, x, y, more) => ({
  type: "scatter", mode: "markers", name, x: own.map(x), y: own.map(y),
  customdata: own.map((p) => p.id), text: own.map((p) => hover(p, loss)), hovertemplate: "%{text}<extra></extra>", ...more,
});

/** Such points of all who proposed, each in its colour. */
const marksBySource = (points, loss, x, y, more = {}) =>
  sourcesOf(points.map((p) => p.source)).map(({ source, name, tint }) =>
    marks(name, points.filter((p) => p.source === source), loss, x, y, { marker: { size: 7, color: faded(tint, 0.55), line: { width: 0 } }, ...more }));

/** What the goal goes by so far, of each episode the best, the mean and the strategy's picks against chance, and ε. */
export function episodeChart(figure) {
  return new Chart(figure, ({ goal, episodes }) => {
    const word = figureName(goal);
    figure.querySelector("h2").textContent = `${capital(word)} by episode`;
    const known = episodes.filter((e) => e.best_reward != null);
    const hasChance = known.some((e) => e.epsilon !== null);
    figure.querySelector("[data-caption]").textContent = `As the search goes on${hasChance ? "; ε is the share left to chance" : ""}.`;
    if (!known.length) return { empty: "The first results come with the first finished candidates." };
    const x = known.map((e) => e.number);
    const found = figuresSoFar(goal, known);
    const line = (name, y, tint, look = {}, more = {}) =>
      curve(name, x, y, { color: tint, ...look }, {
        mode: x.length > 60 ? "lines" : "lines+markers", marker: { size: 5, color: tint },
        hovertemplate: `${name} %{y:.3f}<extra>episode %{x}</extra>`, ...more,
      });
    const of = (reward) => known.map((e) => figureOfReward(goal, reward(e)));
    const traces = [
      line(goal === "front" ? soFar(goal) : "best so far", found, colour("ink"), { shape: "hv" }),
      line("best", of((e) => e.best_reward), colour("ink-soft"), {}, { visible: "legendonly" }),
      line("mean", of((e) => e.mean_reward), colour("ink-soft"), { dash: "dot" }),
      ...sourcesOf(known.flatMap((e) => Object.keys(e.by_source))).map(({ source, name, tint }) => line(name, of((e) => e.by_source[source]?.mean_reward), tint)),
    ].filter(({ y }) => y.some((figure) => figure !== null));
    if (hasChance) {
      const more = { mode: "lines", yaxis: "y2", hovertemplate: "ε %{y:.2f}<extra>episode %{x}</extra>" };
      traces.push(line("ε", known.map((e) => e.epsilon), colour("series-dim"), { width: 1, dash: "dash" }, more));
    }
    return {
      traces,
      layout: {
        xaxis: { title: { text: "episode" }, dtick: x.at(-1) <= 20 ? 1 : undefined },
        yaxis: { title: { text: word } },
        yaxis2: { title: { text: "ε" }, overlaying: "y", side: "right", range: [0, 1.02], dtick: 0.5 },
      },
      label: `${soFar(goal)}, after ${known.length} episodes: ${fixed(found.at(-1))}`,
    };
  });
}

/** Loss against latency, with the Pareto front; `noise` is the loss's between seeds, if known, and `like` what it cannot tell from the best. */
export function tradeoffChart(figure, choose) {
  return new Chart(
    figure,
    ({ points, front, loss, noise, goal, like }) => {
      const shown = points.filter((p) => lossOf(p, loss) != null && p.latency_ms != null);
      if (!shown.length) return { empty: "No architecture has been trained yet." };
      const traces = marksBySource(shown, loss, (p) => p.latency_ms, (p) => lossOf(p, loss));
      const close = shown.filter((p) => like.has(p.architecture));
      if (close.length) {
        traces.push(
          marks(`≈ ${goal === "front" ? "front" : "best"}`, close, loss, (p) => p.latency_ms, (p) => lossOf(p, loss), {
            marker: { size: 11, symbol: "circle-open", color: colour("ink-soft"), line: { width: 1 } },
          }),
        );
      }
      traces.push(
        marks(noise ? "Pareto front ± noise" : "Pareto front", front, loss, (p) => p.latency_ms, (p) => lossOf(p, loss), {
          mode: "lines+markers", line: { color: colour("ink"), width: 1.5, shape: "hv" },
          // Rings, through which the colours of who proposed are seen.
          marker: { size: 12, symbol: "circle-open", color: colour("ink"), line: { width: 2 } },
          ...(noise && { error_y: { type: "constant", value: noise.sd, color: colour("ink-soft"), thickness: 1.2, width: 3 } }),
        }),
      );
      return {
        traces,
        layout: {
          xaxis: { title: { text: "latency (ms)" }, rangemode: "tozero" },
          yaxis: { title: { text: `${loss} loss` } },
        },
        label: `${whole(shown.length)} architectures by latency and loss, ${whole(front.length)} of them on the Pareto front. The table of candidates below holds the same.`,
      };
    },
    (point) => choose(point.customdata),
  );
}

const isOver = (search) => ["succeeded", "failed", "cancelled"].includes(search?.status);

/** What the strategy foresaw against what came. */
export function predictedChart(figure, choose) {
  return new Chart(
    figure,
    ({ points, search }) => {
      const known = points.filter((p) => p.predicted_loss != null);
      if (!known.length && isOver(search)) return { empty: `The strategy ${strategyOf(search.spec.controller)} predicted nothing in this search.` };
      if (!known.length) return { empty: "Predictions begin when the strategy has learned something." };
      const loss = search?.spec.reward.loss ?? "relative";
      const came = (p) => Math.min(lossOf(p, loss), 1); // as it counts in the reward
      const values = known.flatMap((p) => [p.predicted_loss, came(p)]);
      const [low, high] = [Math.min(...values), Math.max(...values)];
      return {
        traces: [
          curve("a perfect guess", [low, high], [low, high], { color: colour("line-strong"), width: 1.5, dash: "dash" }, { hoverinfo: "skip", showlegend: false }),
          ...marksBySource(known, loss, (p) => p.predicted_loss, came, { hovertemplate: "%{text}<br>predicted %{x:.3f}<extra></extra>" }),
        ],
        layout: {
          xaxis: { title: { text: `predicted ${loss} loss` } },
          yaxis: { title: { text: `true ${loss} loss` } },
        },
        label: `Predicted against true loss of ${whole(known.length)} architectures`,
      };
    },
    (point) => point.customdata && choose(point.customdata),
  );
}
