// The search's states ranked under another α and β, as the sliders move.

import { get } from "../api.js";
import { debounced, el, isOperator, nothing, problem, show } from "../dom.js";
import { fixed, millions, ms, percent, whole } from "../format.js";
import { LOSS_START } from "../parts.js";
import { plainTable } from "../table.js";

const SHOWN = 15;

export class Ranking {
  #place;
  #path;
  #reference;
  #own = null; // α and β of the search
  #rest = null; // where the sliders stand for these: they round, and end somewhere
  #abort = null;

  constructor(section, path, reference) {
    const find = (name) => section.querySelector(`[data-${name}]`);
    this.#place = find("table");
    this.#path = path;
    this.#reference = reference;
    this.alpha = find("alpha");
    this.beta = find("beta");
    this.alphaOut = find("alpha-out");
    this.betaOut = find("beta-out");
    this.reset = find("reset");
    const changed = debounced(() => this.load(), 80);
    for (const slider of [this.alpha, this.beta]) {
      slider.addEventListener("input", () => {
        this.#say();
        changed();
      });
    }
    this.reset.addEventListener("click", () => {
      this.#place.dataset.moved = "";
      this.alpha.value = this.#rest.alpha;
      this.beta.value = this.#rest.beta;
      this.#say();
      this.load();
    });
    show(this.#place, el("div", { class: "skeleton" }), el("div", { class: "skeleton" }));
  }

  /** What the sliders ask for; null is the search's own. */
  #asked() {
    if (this.#own === null) return {};
    const asked = (name) => (this[name].value === this.#rest[name] ? null : this[name].value);
    return { alpha: asked("alpha"), beta: asked("beta") };
  }

  #say() {
    const { alpha, beta } = this.#asked();
    this.alphaOut.textContent = fixed(Number(alpha ?? this.#own.alpha), 2);
    this.betaOut.textContent = fixed(Number(beta ?? this.#own.beta), 2);
    this.reset.disabled = alpha === null && beta === null;
  }

  async load() {
    this.#abort?.abort();
    this.#abort = new AbortController();
    const asked = { ...this.#asked(), limit: SHOWN };
    try {
      const found = await get(`${this.#path}/ranking`, asked, this.#abort.signal);
      if (this.#own === null) {
        this.#own = { alpha: found.alpha, beta: found.beta };
        this.alpha.value = found.alpha;
        this.beta.value = found.beta;
        this.#rest = { alpha: this.alpha.value, beta: this.beta.value };
        this.alpha.disabled = this.beta.disabled = false;
        this.#say();
      }
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
