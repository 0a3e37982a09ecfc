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

/** What the figure is called. */
export const figureName = (goal) => FIGURES[goal][0];

/** The figure of a search that goes on, in words. */
export const soFar = (goal) => FIGURES[goal][2];

/** The figure that a reward stands for, if it stands for one; that of goal limit has no price. */
export const figureOfReward = (goal, reward, hypervolume) =>
  reward == null ? null : figureOf({ goal, best: { reward, loss: 1 - reward }, hypervolume }) ?? null;

/** The figure after each of these episodes. */
export function figuresSoFar(goal, episodes) {
  let top = -Infinity;
  return episodes.map((e) => figureOfReward(goal, (top = Math.max(top, e.best_reward)), e.hypervolume));
}

/** The figure with its name. */
export function foundBy(search) {
  const value = figureOf(search);
  return value == null ? "–" : el("span", {}, fixed(value), el("small", { class: "muted under" }, ` ${figureName(search.goal)}`));
}
