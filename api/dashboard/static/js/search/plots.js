// The charts of a search.

import { Chart, colour, curve, faded } from "../charts.js";
import { fixed, ms, whole } from "../format.js";

const lossOf = (point, loss) => point[`loss_${loss}`] ?? point.loss;

const hover = (point, loss) =>
  [
    point.architecture,
    `reward ${fixed(point.reward)}`,
    `loss ${fixed(lossOf(point, loss))}` + (point.loss_start == null ? "" : `, at the start ${fixed(point.loss_start)}`),
    ms(point.latency_ms),
  ].join("<br>");

/** Points of architectures that can be chosen, each with what is said where one points at it. */
const marks = (name, own, loss, x, y, more) => ({
  type: "scatter", mode: "markers", name, x: own.map(x), y: own.map(y),
  customdata: own.map((p) => p.id), text: own.map((p) => hover(p, loss)), hovertemplate: "%{text}<extra></extra>", ...more,
});

/** Reward of each episode: best, mean, the strategy's picks against chance, and ε. */
export function rewardChart(figure) {
  return new Chart(figure, ({ episodes }) => {
    const known = episodes.filter((e) => e.best_reward !== null && e.best_reward !== undefined);
    if (!known.length) return { empty: "The first results come with the first finished candidates." };
    const x = known.map((e) => e.number);
    let best = -Infinity;
    const sofar = known.map((e) => (best = Math.max(best, e.best_reward)));
    const line = (name, y, tint, look = {}, more = {}) =>
      curve(name, x, y, { color: colour(tint), ...look }, {
        mode: x.length > 60 ? "lines" : "lines+markers", marker: { size: 5, color: colour(tint) },
        hovertemplate: `${name} %{y:.3f}<extra>episode %{x}</extra>`, ...more,
      });
    const of = (source) => known.map((e) => e.by_source?.[source]?.mean_reward ?? null);
    const traces = [
      line("best so far", sofar, "ink", { shape: "hv" }, { mode: "lines" }),
      line("best", known.map((e) => e.best_reward), "series-4", {}, { visible: "legendonly" }),
      line("mean", known.map((e) => e.mean_reward), "series-3", { dash: "dot" }),
    ];
    const sources = new Set(known.flatMap((e) => Object.keys(e.by_source ?? {})));
    const own = [...sources].filter((s) => s !== "random");
    traces.push(...own.map((s) => line(`${s}'s picks`, of(s), s === own.at(-1) ? "series-1" : "series-3")));
    if (sources.has("random")) traces.push(line("random picks", of("random"), "series-2"));
    if (known.some((e) => e.epsilon !== null)) {
      const more = { mode: "lines", yaxis: "y2", hovertemplate: "ε %{y:.2f}<extra>episode %{x}</extra>" };
      traces.push(line("ε", known.map((e) => e.epsilon), "series-dim", { width: 1, dash: "dash" }, more));
    }
    return {
      traces,
      layout: {
        xaxis: { title: { text: "episode" }, dtick: x.at(-1) <= 20 ? 1 : undefined },
        yaxis: { title: { text: "reward" } },
        yaxis2: { title: { text: "ε" }, overlaying: "y", side: "right", range: [0, 1.02], dtick: 0.5 },
      },
      label: `Reward of ${known.length} episodes; the best so far is ${fixed(best)}`,
    };
  });
}

/** Loss against latency, with the Pareto front; `noise` is the loss's between seeds, if known. */
export function tradeoffChart(figure, choose) {
  return new Chart(
    figure,
    ({ points, front, loss, noise }) => {
      const shown = points.filter((p) => lossOf(p, loss) != null && p.latency_ms != null);
      if (!shown.length) return { empty: "No architecture has been trained yet." };
      const trace = (name, source, tint) => {
        const own = shown.filter((p) => (source === null ? true : p.source === source));
        return marks(name, own, loss, (p) => p.latency_ms, (p) => lossOf(p, loss), { marker: { size: 7, color: faded(tint, 0.55), line: { width: 0 } } });
      };
      // Later ones lie above: there are more random picks, and they say less.
      const sources = [...new Set(shown.map((p) => p.source))].sort(
        (a, b) => (b === "random") - (a === "random") || a.localeCompare(b),
      );
      const tints = { controller: colour("series-1"), random: colour("series-2") };
      const traces = sources.map((s) => trace(s === "random" ? "random picks" : `${s}'s picks`, s, tints[s] ?? colour("series-3")));
      traces.push(
        marks(noise ? "Pareto front ± noise" : "Pareto front", front, loss, (p) => p.latency_ms, (p) => lossOf(p, loss), {
          mode: "lines+markers", line: { color: colour("ink"), width: 1.5, shape: "hv" },
          marker: { size: 9, color: colour("surface"), line: { color: colour("ink"), width: 2 } },
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

/** What the strategy foresaw against what came. */
export function predictedChart(figure, choose) {
  return new Chart(
    figure,
    ({ points }) => {
      const known = points.filter((p) => p.predicted_reward != null && p.reward != null);
      if (!known.length) return { empty: "Predictions begin when the strategy has learned something." };
      const values = known.flatMap((p) => [p.predicted_reward, p.reward]);
      const [low, high] = [Math.min(...values), Math.max(...values)];
      const picked = [...new Set(known.map((p) => p.source))].filter((s) => s !== "random");
      const trace = (drawn, tint) => {
        const own = known.filter((p) => (p.source === "random") === drawn);
        return marks(drawn ? "random picks" : `picks by ${picked.join(", ")}`, own, "relative", (p) => p.predicted_reward, (p) => p.reward, {
          hovertemplate: "%{text}<br>predicted %{x:.3f}<extra></extra>", marker: { size: 7, color: faded(tint, 0.55) },
        });
      };
      return {
        traces: [
          curve("a perfect guess", [low, high], [low, high], { color: colour("line-strong"), width: 1.5, dash: "dash" }, { hoverinfo: "skip", showlegend: false }),
          trace(true, colour("series-2")),
          trace(false, colour("series-1")),
        ].filter((t) => t.x.length),
        layout: {
          xaxis: { title: { text: "predicted reward" } },
          yaxis: { title: { text: "true reward" } },
        },
        label: `Predicted against true reward of ${whole(known.length)} architectures`,
      };
    },
    (point) => point.customdata && choose(point.customdata),
  );
}
