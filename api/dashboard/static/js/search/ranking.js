// The search's states ranked under another α and β, as the sliders move.

import { get } from "../api.js";
import { debounced, el, isOperator, nothing, problem, show } from "../dom.js";
import { fixed, millions, ms, percent, whole } from "../format.js";
import { LOSS_START } from "../parts.js";
import { plainTable } from "../table.js";

const SHOWN = 15;
const NAMES = ["alpha", "beta"];

export class Ranking {
  #place;
  #path;
  #reference;
  #sliders;
  #own = null; // α and β of the search
  #rest = null; // where the sliders stand for these: they round, and end somewhere
  #abort = null;

  constructor(section, path, reference) {
    const find = (name) => section.querySelector(`[data-${name}]`);
    this.#place = find("table");
    this.#path = path;
    this.#reference = reference;
    this.#sliders = Object.fromEntries(NAMES.map((name) => [name, { input: find(name), output: find(`${name}-out`) }]));
    this.reset = find("reset");
    const changed = debounced(() => this.load(), 80);
    for (const { input } of Object.values(this.#sliders)) {
      input.addEventListener("input", () => {
        this.#say();
        changed();
      });
    }
    this.reset.addEventListener("click", () => {
      this.#place.dataset.moved = "";
      for (const name of NAMES) this.#sliders[name].input.value = this.#rest[name];
      this.#say();
      this.load();
    });
    show(this.#place, el("div", { class: "skeleton" }), el("div", { class: "skeleton" }));
  }

  /** What the sliders ask for; null is the search's own. */
  #asked() {
    if (this.#own === null) return {};
    const asked = (name, { value }) => (value === this.#rest[name] ? null : value);
    return Object.fromEntries(NAMES.map((name) => [name, asked(name, this.#sliders[name].input)]));
  }

  #say() {
    const asked = this.#asked();
    for (const name of NAMES) this.#sliders[name].output.textContent = fixed(Number(asked[name] ?? this.#own[name]), 2);
    this.reset.disabled = NAMES.every((name) => asked[name] === null);
  }

  #begin(own) {
    this.#own = own;
    this.#rest = {};
    for (const name of NAMES) {
      const { input } = this.#sliders[name];
      input.value = own[name];
      this.#rest[name] = input.value;
      input.disabled = false;
    }
    this.#say();
  }

  async load() {
    this.#abort?.abort();
    this.#abort = new AbortController();
    try {
      const found = await get(`${this.#path}/ranking`, { ...this.#asked(), limit: SHOWN }, this.#abort.signal);
      if (this.#own === null) this.#begin({ alpha: found.alpha, beta: found.beta });
      this.#render(found);
    } catch (error) {
      if (error.name !== "AbortError") show(this.#place, problem(error, () => this.load()));
    }
  }

  #render({ items, loss, warning }) {
    if (!items.length) {
      show(this.#place, nothing("The first results come with the first finished candidates."));
      return;
    }
    const columns = [
      { label: "Rank", num: true, cell: (r) => whole(r.rank) },
      { label: "Before", num: true, cell: move },
      { label: "Architecture", cell: (r) => r.architecture },
      { label: "Reward", num: true, cell: (r) => fixed(r.reward) },
      { label: "Reward before", num: true, cell: (r) => fixed(r.stored_reward) },
      { label: `Loss (${loss})`, num: true, cell: (r) => fixed(r.loss) },
      { label: "Start", num: true, help: LOSS_START, cell: (r) => fixed(r.loss_start) },
      { label: "Latency", num: true, cell: (r) => ms(r.latency_ms) },
      { label: "Of the teacher's", num: true, cell: (r) => percent(r.latency_ratio) },
      { label: "Parameters", num: true, cell: (r) => millions(r.params_millions) },
    ];
    if (isOperator()) columns.push({ label: el("span", { class: "visually-hidden" }, "Distil"), cell: (r) => this.#distil(r) });
    const doubt = warning ? [el("div", { class: "notice warn" }, warning)] : [];
    show(this.#place, ...doubt, plainTable(columns, items, "Ranking under this reward"));
  }

  #distil(row) {
    const query = new URLSearchParams({ search: this.#reference, architecture: row.architecture });
    return el("a", { href: `/distillations/new?${query}`, "aria-label": `Distil ${row.architecture}` }, "Distil");
  }
}

function move({ rank, stored_rank: before }) {
  if (before === null || before === undefined) return "–";
  if (before === rank) return el("span", { class: "move" }, `${whole(before)} =`);
  const up = before > rank;
  return el("span", { class: "move", "data-up": up, "data-down": !up }, `${whole(before)} ${up ? "↑" : "↓"}`);
}
