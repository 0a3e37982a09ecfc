// How sure the figures of a search are: noise, predictions, what explains them, what chance finds.

import { get } from "../api.js";
import { Chart, colour, curve } from "../charts.js";
import { el, problem, show } from "../dom.js";
import { fixed, percent, whole } from "../format.js";

export class Sureness {
  #path;
  #words;
  #charts;

  constructor(section, path) {
    this.#path = `${path}/analysis`;
    this.#words = section.querySelector("[data-words]");
    const find = (name) => section.querySelector(`[data-chart=${name}]`);
    this.#charts = [axesChart(find("axes")), chanceChart(find("chance")), foreseenChart(find("foreseen"))];
    show(this.#words, el("div", { class: "skeleton" }));
  }

  /** Read it and show it; gives what was found, null where that did not work. */
  async load() {
    try {
      const found = await get(this.#path);
      show(this.#words, el("ul", {}, found.sentences.map((text) => el("li", {}, text))));
      await Promise.all(this.#charts.map((chart) => chart.update(found)));
      return found;
    } catch (error) {
      show(this.#words, problem(error, () => this.load()));
      for (const chart of this.#charts) chart.fail(error);
      return null;
    }
  }
}

const between = (values, lows, highs) => ({
  type: "data", symmetric: false, array: highs.map((high, i) => high - values[i]),
  arrayminus: lows.map((low, i) => values[i] - low), color: colour("ink-soft"), thickness: 1.2, width: 4,
});

function axesChart(figure) {
  return new Chart(figure, ({ loss_importance, reward_importance, num_states }) => {
    const known = [["loss", loss_importance, "series-1"], ["reward", reward_importance, "series-2"]].filter(([, about]) => about);
    if (!known.length) return { empty: `Nothing is explained by ${whole(num_states)} architectures.` };
    const traces = known.map(([name, { axes }, tint]) => {
      const of = (key) => axes.map((axis) => axis[key]);
      return {
        type: "bar", name, x: of("axis"), y: of("share"), marker: { color: colour(tint) },
        error_y: between(of("share"), of("low"), of("high")), hovertemplate: `${name}: %{y:.0%}<extra>%{x}</extra>`,
      };
    });
    const [name, { axes }] = known[0];
    return {
      traces,
      layout: { barmode: "group", yaxis: { title: { text: "share of what is explained" }, tickformat: ".0%", rangemode: "tozero" } },
      label: `Of the ${name}, ${axes.map(({ axis, share }) => `${axis} explains ${percent(share)}`).join(", ")}`,
    };
  });
}

function chanceChart(figure) {
  return new Chart(figure, ({ chance }) => {
    if (!chance) return { empty: "There is no estimate yet." };
    const { measure, found, expected, low, high, by_own_random: own } = chance.measures[0];
    const dot = (name, x, tint, more = {}) => ({
      type: "scatter", mode: "markers", name, x: [x], y: [name], marker: { size: 11, color: colour(tint) },
      hovertemplate: "%{x:.3f}<extra>%{y}</extra>", ...more,
    });
    return {
      traces: [
        ...(own === null ? [] : [dot("its random picks", own, "series-3")]),
        dot("as many random ones", expected, "series-2", { error_x: between([expected], [low], [high]) }),
        dot("this search", found, "series-1"),
      ],
      layout: { showlegend: false, xaxis: { title: { text: measure === "reward" ? "best reward" : measure } } },
      label: `${measure} of this search ${fixed(found)}, of as many random architectures ${fixed(expected)}`,
    };
  });
}

function foreseenChart(figure) {
  return new Chart(figure, ({ predictions }) => {
    const known = predictions.filter((p) => p.rmse !== null);
    if (!predictions.length) return { empty: "No pick of a finished episode came with a prediction." };
    if (!known.length) return { empty: "No finished episode has three predictions yet." };
    const line = (name, key, tint, more = {}) =>
      curve(name, known.map((p) => p.episode), known.map((p) => p[key]), { color: colour(tint) }, {
        mode: "lines+markers", marker: { size: 5, color: colour(tint) },
        hovertemplate: `${name} %{y:.3f}<extra>episode %{x}, %{customdata} pairs</extra>`, customdata: known.map((p) => p.pairs), ...more,
      });
    return {
      traces: [line("rank correlation", "spearman", "series-1"), line("error", "rmse", "series-2", { yaxis: "y2" })],
      layout: {
        xaxis: { title: { text: "episode" } },
        yaxis: { title: { text: "rank correlation" }, range: [-1.05, 1.05] },
        yaxis2: { title: { text: "error" }, overlaying: "y", side: "right", rangemode: "tozero", tickmode: "auto", nticks: 5 },
      },
      label: `Predictions of ${whole(known.length)} episodes; the last rank correlation is ${fixed(known.at(-1).spearman, 2)}`,
    };
  });
}
