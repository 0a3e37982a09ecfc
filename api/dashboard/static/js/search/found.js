// What a search has found in one figure, by what its goal goes by.

import { el } from "../dom.js";
import { fixed } from "../format.js";

/** The best candidate; of a front no single one is. */
export const bestOf = ({ goal, best }) => (goal === "front" ? null : best);

const FIGURES = {
  reward: ["reward", ({ best }) => best?.reward],
  limit: ["loss", ({ best }) => best?.loss],
  front: ["hypervolume", ({ hypervolume }) => hypervolume],
};

/** The figure with its name. */
export function foundBy(search) {
  const [word, figure] = FIGURES[search.goal];
  const value = figure(search);
  return value == null ? "–" : el("span", {}, fixed(value), el("small", { class: "muted under" }, ` ${word}`));
}
