// How often each pair of values was tried, as a table whose cells are tinted.

import { get } from "../api.js";
import { el, nothing, problem, show } from "../dom.js";
import { whole } from "../format.js";
import { plainTable } from "../table.js";

export class Coverage {
  #path;
  #heat;
  #down;
  #across;
  #found = null;

  constructor(figure, path) {
    this.#path = `${path}/coverage`;
    this.figure = figure;
    this.#heat = figure.querySelector("[data-heat]");
    this.#down = figure.querySelector("[data-down]");
    this.#across = figure.querySelector("[data-across]");
    for (const select of [this.#down, this.#across]) {
      select.addEventListener("change", () => this.#draw());
    }
    show(this.#heat, el("div", { class: "skeleton tall" }));
  }

  async load() {
    try {
      this.#found = await get(this.#path);
    } catch (error) {
      if (this.#heat.querySelector("table") === null) {
        show(this.#heat, problem(error, () => this.load()));
      }
      return;
    }
    if (!this.#down.options.length) {
      const axes = Object.keys(this.#found.axes);
      for (const select of [this.#down, this.#across]) {
        show(select, axes.map((axis) => el("option", {}, axis)));
      }
      this.#down.value = "hidden";
      this.#across.value = "layers";
    }
    this.#draw();
  }

  #draw() {
    const [down, across] = [this.#down.value, this.#across.value];
    if (down === across) {
      show(this.#heat, nothing("Choose two different axes."));
      return;
    }
    const { axes } = this.#found;
    if (!axes[down].length || !axes[across].length) {
      show(this.#heat, nothing("Nothing was tried yet."));
      return;
    }
    const counts = countsOf(this.#found, down, across);
    const most = Math.max(1, ...counts.flat());
    const columns = axes[across].map((value, i) => ({ label: String(value), cell: ({ row }) => cell(row[i], most) }));
    const about = { label: `${down} \\ ${across}`, head: true, cell: ({ value }) => String(value) };
    const rows = axes[down].map((value, i) => ({ value, row: counts[i] }));
    show(this.#heat, plainTable([about, ...columns], rows, `Candidates by ${down} and ${across}`, { name: "heat" }));
    this.figure.dataset.drawn = "";
  }
}

function cell(count, most) {
  const node = el("td", { "data-none": count === 0, "data-strong": count / most > 0.55 }, whole(count));
  if (count) {
    const share = Math.round(12 + (88 * count) / most);
    node.style.background = `color-mix(in srgb, var(--accent) ${share}%, var(--sunken))`;
  }
  return node;
}

/** The counts with `down` as rows, whichever way round the pair was given. */
function countsOf({ axes, pairs }, down, across) {
  const pair = pairs.find((p) => p.rows === down && p.columns === across);
  if (pair) return pair.counts;
  const turned = pairs.find((p) => p.rows === across && p.columns === down);
  return axes[down].map((_, i) => axes[across].map((__, j) => turned.counts[j][i]));
}
