// The panel beside the charts: one candidate, and the button that distils it.

import { get, tried } from "../api.js";
import { Chart, colour, curve as line } from "../charts.js";
import { byId, el, isOperator, problem, show } from "../dom.js";
import { exactMoment, fixed, millions, ms, parts, percent, plural, whole } from "../format.js";
import { LOSS_START, chip, facts } from "../parts.js";
import { plainTable } from "../table.js";

export class Panel {
  #panel = byId("panel");
  #body = this.#panel.querySelector("[data-body]");
  #title = byId("panel-title");
  #reference;
  #before = null;
  #last = null; // of the candidates, the one asked for last
  search = null;

  constructor(reference) {
    this.#reference = reference;
    this.#panel.querySelector("[data-close]").addEventListener("click", () => this.close());
    addEventListener("keydown", (event) => event.key === "Escape" && this.close());
  }

  async open(id) {
    this.#last = id;
    if (this.#panel.hidden) this.#before = document.activeElement;
    this.#panel.hidden = false;
    this.#title.textContent = "Candidate";
    show(this.#body, el("div", { class: "skeleton tall" }));
    this.#title.focus({ preventScroll: true });
    try {
      const candidate = await get(`/candidates/${encodeURIComponent(id)}`);
      if (id === this.#last) this.#render(candidate);
    } catch (error) {
      if (id === this.#last) show(this.#body, problem(error, () => this.open(id)));
    }
  }

  /** Read the candidate that is shown anew, if it is this one. */
  async renew(id) {
    if (this.#panel.hidden || id !== this.#last) return;
    await tried(async () => {
      const candidate = await get(`/candidates/${encodeURIComponent(id)}`);
      if (id !== this.#last) return;
      const focused = this.#body.contains(document.activeElement);
      this.#render(candidate);
      if (focused) (this.#body.querySelector("[data-distil]") ?? this.#title).focus({ preventScroll: true });
    }, () => {}); // what was read before stays
  }

  close() {
    if (this.#panel.hidden) return;
    this.#panel.hidden = true;
    this.#before?.focus({ preventScroll: true });
  }

  #render(candidate) {
    const { layers, heads, hidden, intermediate, activation } = parts(candidate.architecture);
    this.#title.textContent = candidate.architecture;
    const query = new URLSearchParams({
      search: this.search?.id ?? this.#reference, architecture: candidate.architecture,
    });
    const distil =
      isOperator() && candidate.status !== "failed"
        ? el("div", { class: "actions" }, el("a", { class: "button primary", "data-distil": true, href: `/distillations/new?${query}` }, "Distil"))
        : null;
    const curve = candidate.curve?.length ? el("div", { class: "plot", "data-plot": true }) : null;
    const figure = curve && el("figure", {}, el("h3", {}, "Its short training"), curve);
    show(
      this.#body,
      el("p", {}, chip(candidate.status), candidate.reused ? el("span", { class: "muted" }, " known from before") : null),
      candidate.error && el("p", { class: "notice bad" }, candidate.error),
      candidate.note && el("p", { class: "notice" }, candidate.note),
      distil,
      el("h3", {}, "Figures"),
      facts([
        ["Reward", fixed(candidate.reward)],
        ["Predicted before", fixed(candidate.predicted_reward)],
        ["Relative loss", fixed(candidate.loss_relative)],
        ["Output loss", fixed(candidate.loss_output)],
        ["Mean loss", fixed(candidate.loss_mean)],
        [el("span", { title: LOSS_START }, "Loss at the start"), fixed(candidate.loss_start)],
        ...candidate.readings.map((r) => [`Relative loss after ${plural(r.step, "step")}`, fixed(r.loss_relative)]),
        ["Steps made", candidate.num_steps == null ? "–" : whole(candidate.num_steps)],
        ["Latency", `${ms(candidate.latency_ms)} (${percent(candidate.latency_ratio)} of the teacher's)`],
        ["Parameters", millions(candidate.params_millions)],
      ]),
      el("h3", {}, "Shape"),
      facts([
        ["Layers", String(layers)],
        ["Attention heads", String(heads)],
        ["Hidden size", String(hidden)],
        ["Inner size", String(intermediate)],
        ["Activation", activation],
        ["Episode", String(candidate.episode)],
        ["Picked by", candidate.source],
      ]),
      figure,
      candidate.attempts?.length ? el("h3", {}, "Attempts") : null,
      candidate.attempts?.length ? attempts(candidate.attempts) : null,
    );
    if (figure) drawCurve(figure, candidate.curve);
  }
}

function attempts(rows) {
  return plainTable(
    [
      { label: "Worker", cell: (a) => a.worker },
      { label: "Ended", cell: (a) => a.outcome ?? "running" },
      { label: "Began", cell: (a) => exactMoment(a.started_at) },
    ],
    rows,
    "Attempts",
  );
}

function drawCurve(figure, curve) {
  const chart = new Chart(figure, (points) => ({
    traces: [line("loss", points.map((p) => p.step), points.map((p) => p.loss), { color: colour("series-1") }, { hovertemplate: "step %{x}: %{y:.4f}<extra></extra>" })],
    layout: { showlegend: false, xaxis: { title: { text: "step" } }, yaxis: { title: { text: "training loss" } } },
    label: `Training loss over ${points.length} points`,
  }));
  chart.update(curve);
}
