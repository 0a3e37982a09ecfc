// The search's states ranked by another goal, or under another α, β or latency, as the sliders move.

import { get } from "../api.js";
import { debounced, el, isOperator, nothing, problem, show } from "../dom.js";
import { fixed, millions, ms, percent, whole } from "../format.js";
import { LOSS_START, alike } from "../parts.js";
import { plainTable } from "../table.js";

const SHOWN = 15; // of a ranking; of a front all that the service gives
const WITHIN = "noise between seeds cannot tell it from the first";
const SLIDERS = { reward: ["alpha", "beta"], limit: ["max_latency_ratio"], front: [] };
const SAID = {
  alpha: (value) => fixed(value, 2),
  beta: (value) => fixed(value, 2),
  max_latency_ratio: (value) => (value === null ? "any" : percent(value)),
};

export class Ranking {
  #place;
  #path;
  #reference;
  #goal;
  #parts; // what is there for one goal alone
  #sliders;
  #ownGoal = null; // of the search
  #own = {}; // name of a slider → the search's value; of a goal that was looked at
  #rest = {}; // where the sliders stand for these: they round, and end somewhere
  #abort = null;

  constructor(section, path, reference) {
    const find = (name) => section.querySelector(`[data-${name.replaceAll("_", "-")}]`);
    this.#place = find("table");
    this.#path = path;
    this.#reference = reference;
    this.#goal = find("goal");
    this.#parts = section.querySelectorAll("[data-of]");
    const names = Object.values(SLIDERS).flat();
    this.#sliders = Object.fromEntries(names.map((name) => [name, { input: find(name), output: find(`${name}-out`) }]));
    this.reset = find("reset");
    const changed = debounced(() => this.load(), 80);
    for (const input of [this.#goal, ...Object.values(this.#sliders).map((slider) => slider.input)]) {
      input.addEventListener("input", () => {
        this.#say();
        changed();
      });
    }
    this.reset.addEventListener("click", () => {
      this.#goal.value = this.#ownGoal;
      for (const [name, value] of Object.entries(this.#rest)) this.#sliders[name].input.value = value;
      this.#say();
      this.load();
    });
    show(this.#place, el("div", { class: "skeleton" }), el("div", { class: "skeleton" }));
  }

  /** What is asked for; null is the search's own, which is not known before the first answer. */
  #asked() {
    if (this.#ownGoal === null) return {};
    const moved = (name) => name in this.#rest && this.#sliders[name].input.value !== this.#rest[name];
    const asked = SLIDERS[this.#goal.value].map((name) => [name, moved(name) ? this.#sliders[name].input.value : null]);
    return { goal: this.#goal.value === this.#ownGoal ? null : this.#goal.value, ...Object.fromEntries(asked) };
  }

  #say() {
    const { goal, ...asked } = this.#asked();
    for (const part of this.#parts) part.hidden = part.dataset.of !== this.#goal.value;
    for (const [name, value] of Object.entries(asked)) {
      if (name in this.#own) this.#sliders[name].output.textContent = SAID[name](value === null ? this.#own[name] : Number(value));
    }
    this.reset.disabled = [goal, ...Object.values(asked)].every((value) => value === null);
  }

  /** Let the sliders of a goal that is looked at for the first time begin with the search's own. */
  #begin(found) {
    if (this.#ownGoal === null) {
      this.#ownGoal = this.#goal.value = found.goal;
      this.#goal.disabled = false;
    }
    for (const name of SLIDERS[found.goal].filter((known) => !(known in this.#own))) {
      const { input } = this.#sliders[name];
      this.#own[name] = found[name];
      input.value = found[name] ?? input.max;
      this.#rest[name] = input.value;
      input.disabled = false;
    }
    this.#say();
  }

  async load() {
    this.#abort?.abort();
    this.#abort = new AbortController();
    try {
      const found = await get(`${this.#path}/ranking`, this.#asked(), this.#abort.signal);
      this.#begin(found);
      this.#render(found);
    } catch (error) {
      if (error.name !== "AbortError") show(this.#place, problem(error, () => this.load()));
    }
  }

  #render({ goal, items, loss, hypervolume, warning }) {
    if (!items.length) {
      const fast = goal === "limit" && this.#asked().max_latency_ratio !== null;
      show(this.#place, nothing(fast ? "Nothing that was explored is so fast." : "The first results come with the first finished candidates."));
      return;
    }
    const rank = { label: "Rank", num: true, cell: (r) => whole(r.rank) };
    const before = { label: "Before", num: true, cell: move };
    const rewards = [
      { label: "Reward", num: true, cell: (r) => fixed(r.reward) },
      { label: "Reward before", num: true, cell: (r) => fixed(r.stored_reward) },
    ];
    const lost = { label: "Hypervolume lost", num: true, help: "What the front's hypervolume would lose without this student.", cell: (r) => fixed(r.contribution, 4) };
    const columns = [
      ...(goal === "front" ? [] : [rank, before]),
      { label: "Architecture", cell: named },
      ...(goal === "reward" ? rewards : []),
      { label: `Loss (${loss})`, num: true, cell: (r) => fixed(r.loss) },
      { label: "Start", num: true, help: LOSS_START, cell: (r) => fixed(r.loss_start) },
      { label: "Latency", num: true, cell: (r) => ms(r.latency_ms) },
      { label: "Of the teacher's", num: true, cell: (r) => percent(r.latency_ratio) },
      { label: "Parameters", num: true, cell: (r) => millions(r.params_millions) },
      ...(goal === "front" ? [lost] : []),
    ];
    if (isOperator()) columns.push({ label: el("span", { class: "visually-hidden" }, "Distil"), cell: (r) => this.#distil(r) });
    const doubt = warning ? [el("div", { class: "notice warn" }, warning)] : [];
    const covered = `Hypervolume ${fixed(hypervolume)}: the share of the signal that is explained, added up over the halvings of the teacher's latency.`;
    const noted = items.some((r) => r.like_best && r.rank > 1) ? [el("p", { class: "muted" }, `≈ 1: ${WITHIN}.`)] : [];
    const volume = goal === "front" ? [el("p", { class: "muted" }, covered)] : [];
    show(this.#place, ...doubt, ...volume, ...noted, plainTable(columns, goal === "front" ? items : items.slice(0, SHOWN), "Ranking by this goal"));
  }

  #distil(row) {
    const query = new URLSearchParams({ search: this.#reference, architecture: row.architecture });
    return el("a", { href: `/distillations/new?${query}`, "aria-label": `Distil ${row.architecture}` }, "Distil");
  }
}

/** An architecture, with a mark if noise cannot tell it from the first. */
const named = ({ architecture, like_best: isLike, rank }) =>
  isLike && rank > 1 ? [architecture, alike("1", WITHIN)] : architecture;

function move({ rank, stored_rank: before }) {
  if (before === null || before === undefined) return "–";
  if (before === rank) return el("span", { class: "move" }, `${whole(before)} =`);
  const up = before > rank;
  return el("span", { class: "move", "data-up": up, "data-down": !up }, `${whole(before)} ${up ? "↑" : "↓"}`);
}
