// What a search has found in one figure, by what its goal goes by.

import { el } from "../dom.js";
import { fixed } from "../format.js";

/** The best candidate; of a front no single one is. */
export const bestOf = ({ goal, best }) => (goal === "front" ? null : best);

const FIGURES = {
  reward: ["reward", ({ best }) => best?.reward, "best reward so far"],
  limit: ["loss", ({ best }) => best?.loss, "lowest loss so far, within the limits"],
  front: ["hypervolume", ({ hypervolume }) => hypervolume, "hypervolume so far"],
};

export const figureOf = (search) => FIGURES[search.goal][1](search);

/** The figure of a search that goes on, in words. */
export const soFar = (goal) => FIGURES[goal][2];

/** The figure with its name. */
export function foundBy(search) {
  const value = figureOf(search);
  return value == null ? "–" : el("span", {}, fixed(value), el("small", { class: "muted under" }, ` ${FIGURES[search.goal][0]}`));
}
