// All candidates of a search: filtered, sorted and paged by the API.

import { address } from "../api.js";
import { debounced, el, nothing } from "../dom.js";
import { fixed, millions, ms } from "../format.js";
import { LOSS_START, alike, chip } from "../parts.js";
import { PagedTable } from "../table.js";

const WITHIN = { best: "noise between seeds cannot tell it from the best", front: "noise between seeds cannot tell it from those of the Pareto front" };

export class CandidateTable {
  #table;
  #form;
  #section;
  #path;
  #isFirst = true;
  #like = { best: "best", states: new Set() }; // which noise cannot tell from it

  constructor(section, path, choose) {
    this.#section = section;
    this.#path = path;
    this.#form = section.querySelector("[data-filters]");
    const open = (row) =>
      el(
        "button",
        { type: "button", class: "link", "data-key": `row-${row.id}`, onclick: () => choose(row.id) },
        row.architecture,
      );
    const named = (row) => {
      const { best, states } = this.#like;
      return row.status === "succeeded" && states.has(row.architecture) ? [open(row), alike(best, WITHIN[best])] : open(row);
    };
    const columns = [
      { label: "Architecture", sort: "architecture", cell: named },
      { label: "Status", cell: (c) => el("span", { title: c.note ?? c.error }, chip(c.status)) },
      { label: "Reward", sort: "reward", num: true, cell: (c) => fixed(c.reward) },
      { label: "Predicted", sort: "predicted_reward", num: true, cell: (c) => fixed(c.predicted_reward) },
      { label: "Relative loss", sort: "loss_relative", num: true, cell: (c) => fixed(c.loss_relative) },
      { label: "Output loss", sort: "loss_output", num: true, cell: (c) => fixed(c.loss_output) },
      { label: "Start", sort: "loss_start", num: true, help: LOSS_START, cell: (c) => fixed(c.loss_start) },
      { label: "Latency", sort: "latency_ms", num: true, cell: (c) => ms(c.latency_ms) },
      { label: "Parameters", sort: "params_millions", num: true, cell: (c) => millions(c.params_millions) },
      { label: "Episode", sort: "episode", num: true, cell: (c) => String(c.episode) },
      { label: "Picked by", cell: (c) => c.source },
    ];
    this.#table = new PagedTable(section.querySelector("[data-table]"), `${path}/candidates`, columns, {
      sort: "-reward", limit: 25, caption: "Candidates", empty: () => nothing("The first candidates come with the first episode."),
    });
    const refilter = () => this.#table.filter(this.#filters());
    this.#form.addEventListener("input", debounced(refilter, 250));
    this.#form.addEventListener("reset", () => setTimeout(refilter));
    this.#form.addEventListener("submit", (event) => event.preventDefault());
    this.#linkExports();
  }

  /** Read the page again that is shown. */
  load() {
    const isFirst = this.#isFirst;
    this.#isFirst = false;
    // The browser's Back may have filled the fields without a word.
    return isFirst ? this.#table.filter(this.#filters()) : this.#table.load();
  }

  /** Mark the architectures that noise cannot tell from the best, or from the front. */
  mark(goal, architectures) {
    const like = { best: goal === "front" ? "front" : "best", states: new Set(architectures) };
    const { best, states } = this.#like;
    if (best === like.best && states.size === like.states.size && architectures.every((one) => states.has(one))) return;
    this.#like = like;
    const note = this.#section.querySelector("[data-noted]");
    note.hidden = !like.states.size;
    note.textContent = `≈ ${like.best}: ${WITHIN[like.best]}.`;
    this.#table.load();
  }

  /** Let one filter by these who proposed. */
  offer(sources) {
    const { source: select } = this.#form.elements;
    const offered = [...select.options].map(({ value }) => value);
    const more = [...new Set(sources)].filter((source) => !offered.includes(source)).sort();
    select.append(...more.map((source) => el("option", {}, source)));
  }

  #filters() {
    const filters = {};
    for (const [name, value] of new FormData(this.#form)) filters[name] = value.trim();
    if (filters.layers) filters.layers = filters.layers.split(/[\s,]+/);
    return filters;
  }

  #linkExports() {
    for (const link of this.#section.querySelectorAll("[data-export]")) {
      link.href = address(`${this.#path}/export`, { format: link.dataset.export });
    }
  }
}
