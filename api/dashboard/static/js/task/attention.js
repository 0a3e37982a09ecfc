// What students attend to: by epoch, and by example with the distance to the label beside.

import { el, nothing, show } from "../dom.js";
import { heatTable } from "./heat.js";

const SHOWN_SAMPLES = 16;

/** The weight with the darkest tint: the largest, but so that layers that weigh alike are not dark. */
const darkest = (rows) => Math.max(2 / rows[0].length, ...rows.flat());

export class Attention {
  #place;
  #runs = [];
  #epoch = null; // that was chosen; null is the last

  constructor(place) {
    this.#place = place;
    this.#part("method").addEventListener("change", () => this.#showSeeds());
    this.#part("seed").addEventListener("change", () => this.#showRun());
    this.#part("epoch").addEventListener("input", () => {
      this.#epoch = Number(this.#part("epoch").value);
      this.#showWeights();
    });
  }

  #part(name) {
    return this.#place.querySelector(`[data-${name}]`);
  }

  /** Show the runs that have attention; without any there is nothing to see. */
  update(runs) {
    this.#runs = runs.filter(({ attention }) => attention.length);
    this.#place.hidden = this.#runs.length === 0;
    if (this.#place.hidden) return;
    this.#choices("method", [...new Set(this.#runs.map(({ method }) => method))]);
    this.#showSeeds();
  }

  /** Fill a choice anew, and keep what is chosen where it is still there. */
  #choices(name, values) {
    const select = this.#part(name);
    const chosen = select.value;
    show(select, values.map((value) => el("option", {}, String(value))));
    if (values.map(String).includes(chosen)) select.value = chosen;
  }

  #showSeeds() {
    const method = this.#part("method").value;
    this.#choices("seed", this.#runs.filter((run) => run.method === method).map(({ seed }) => seed));
    this.#showRun();
  }

  get #run() {
    const [method, seed] = [this.#part("method").value, Number(this.#part("seed").value)];
    return this.#runs.find((run) => run.method === method && run.seed === seed);
  }

  #showRun() {
    const { attention } = this.#run;
    const slider = this.#part("epoch");
    slider.max = attention.length;
    slider.disabled = attention.length < 2;
    slider.value = Math.min(this.#epoch ?? attention.length, attention.length);
    this.#showWeights();
    this.#showSamples();
  }

  #showWeights() {
    const { attention, method, seed } = this.#run;
    const slider = this.#part("epoch");
    const { epoch, layers, weights } = attention[Number(slider.value) - 1];
    this.#part("epoch-shown").textContent = `${epoch} of ${attention.at(-1).epoch}`;
    slider.setAttribute("aria-valuetext", `epoch ${epoch}`);
    // The same tint means the same weight in every epoch.
    const high = darkest(attention.flatMap((one) => one.weights));
    const rows = weights.map((values, i) => ({ name: String(layers[i]), values }));
    const looks = { corner: "student \\ teacher", caption: `Weights of ${method} with seed ${seed} after epoch ${epoch}`, high };
    show(this.#part("weights"), heatTable(rows, looks));
  }

  #showSamples() {
    const { samples, method, seed } = this.#run;
    const some = samples.slice(0, SHOWN_SAMPLES);
    const about = this.#part("samples-about");
    if (!some.length) {
      about.textContent = "";
      show(this.#part("distances"), nothing("No example was kept."));
      show(this.#part("sample-weights"));
      return;
    }
    about.textContent = "Held-out examples at the end of the first stage: how far what each teacher layer says is from the label, and the weight that the last attending student layer gives it. Near layers ought to weigh more.";
    const table = (values, title, word, high) => [
      el("h4", {}, title),
      heatTable(some.map((one) => ({ name: one.id, values: one[values] })), { corner: "example \\ layer", caption: `${word} of ${method} with seed ${seed} by example`, high }),
    ];
    show(this.#part("distances"), table("distances", "Distance from the label", "Distances", Math.max(...some.flatMap(({ distances }) => distances))));
    show(this.#part("sample-weights"), table("weights", "Weight", "Weights", darkest(some.map(({ weights }) => weights))));
  }
}
