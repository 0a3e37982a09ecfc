// Score against latency: the teacher, what was chosen, and what it is compared with.

import { Chart, colour } from "../charts.js";
import { fixed, millions, ms, percent, whole } from "../format.js";
import { ROLES } from "./members.js";

const LOOKS = {
  teacher: { symbol: "star", tint: "ink", size: 15 },
  variant: { symbol: "triangle-up", tint: "series-3", size: 12 },
  baseline: { symbol: "square", tint: "series-2", size: 11 },
  random: { symbol: "diamond", tint: "series-4", size: 12 },
  undistilled: { symbol: "circle-open", tint: "series-1", size: 10 },
  task: { symbol: "circle-dot", tint: "series-1", size: 13 },
  chosen: { symbol: "circle", tint: "series-1", size: 12 },
};
const SHORTEST_AXIS = 2; // per cent

const hover = (line, scoreName) =>
  [
    line.name, `${scoreName} ${fixed(100 * line.score.mean, 1)}`, ms(line.latency_ms), millions(line.params_millions),
    line.retained && `${percent(line.retained.value, 1)} of the teacher's score`,
  ].filter(Boolean).join("<br>");

export function tradeoffChart(figure) {
  return new Chart(figure, ({ models, picks, score_name: scoreName, headline }) => {
    const shown = models.filter((line) => line.score && line.latency_ms != null);
    if (!shown.length) return { empty: "The points come with the first scores." };
    const taken = new Set(picks.map((pick) => pick.name));
    const scores = shown.map((line) => 100 * line.score.mean);
    const [low, high] = [Math.min(...scores), Math.max(...scores)];
    const margin = Math.max(0.12 * (high - low), (SHORTEST_AXIS - (high - low)) / 2, 0.5);
    const trace = (role) => {
      const own = shown.filter((line) => line.role === role);
      const { symbol, tint, size } = LOOKS[role];
      return {
        type: "scatter", mode: "markers", name: ROLES[role],
        x: own.map((line) => line.latency_ms), y: own.map((line) => 100 * line.score.mean),
        error_y: {
          type: "data", array: own.map((line) => 100 * (line.score.deviation ?? 0)),
          color: colour(tint), thickness: 1, width: 3,
        },
        customdata: own.map((line) => hover(line, scoreName)), hovertemplate: "%{customdata}<extra></extra>",
        cliponaxis: false,
        marker: { symbol, size, color: colour(tint), line: { color: colour("surface"), width: 1 } },
      };
    };
    const picked = shown.filter((line) => taken.has(line.name));
    const rings = {
      type: "scatter", mode: "markers", name: "to take", hoverinfo: "skip", cliponaxis: false,
      x: picked.map((line) => line.latency_ms), y: picked.map((line) => 100 * line.score.mean),
      marker: { symbol: "circle-open", size: 22, color: colour("ink"), line: { width: 2 } },
    };
    return {
      traces: [...Object.keys(LOOKS).map(trace), rings].filter((one) => one.x.length),
      layout: {
        xaxis: { title: { text: "latency (ms)" }, rangemode: "tozero" },
        yaxis: { title: { text: `${scoreName} (per cent)` }, range: [low - margin, high + margin] },
      },
      label: `${whole(shown.length)} models by latency and score. ${headline}`,
    };
  });
}
