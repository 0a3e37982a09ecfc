// Parallel coordinates as lines of our own: an axis for each part, a line for each architecture.

import { el, nothing, show, svg } from "../dom.js";
import { fixed, parts } from "../format.js";

const WIDTH = 1200;
const HEIGHT = 340;
const MARGIN = { left: 46, right: 54, top: 34, bottom: 18 };
const STEPS = ["layers", "heads", "hidden", "intermediate", "activation"];
const MOST_LINES = 800;
// What the best is called; of a front no single one is.
const BEST = { reward: "the one of highest reward", limit: "the one of lowest loss within the limits" };

export class Parallel {
  #place;
  #focus;
  #choose;
  #data = null;

  constructor(figure, choose) {
    this.#place = figure.querySelector("[data-plot]");
    this.#focus = figure.querySelector("[data-focus]");
    this.#choose = choose;
    this.figure = figure;
    show(this.#place, el("div", { class: "skeleton tall" }));
    this.#focus.addEventListener("change", () => this.#data && this.#draw());
  }

  update(points, front, loss, goal) {
    const trained = points.filter((p) => p.reward != null && p.latency_ms != null);
    if (this.#data?.goal !== goal) this.#fit(goal);
    this.#data = { points: trained, front: new Set(front.map((p) => p.architecture)), loss, goal };
    this.#draw();
  }

  fail(error) {
    if (this.#data === null) show(this.#place, el("div", { class: "notice bad", role: "alert" }, error.message));
  }

  /** Say what the goal calls the best, and bring out the front where there is no single best. */
  #fit(goal) {
    const best = BEST[goal];
    this.figure.querySelector("[data-caption]").textContent = `A line is an architecture${best ? `; ${best} is the strong one in orange` : ""}.`;
    this.#focus.value = best ? "top" : "pareto";
  }

  #draw() {
    const { points, front, loss, goal } = this.#data;
    if (!points.length) {
      show(this.#place, nothing("No architecture has been trained yet."));
      return;
    }
    const ranked = [...points].sort((a, b) => b.reward - a.reward);
    const on = this.#chosen(ranked, front);
    const rest = ranked.filter((p) => !on.has(p)).slice(0, Math.max(0, MOST_LINES - on.size));
    const lines = [...rest, ...[...on].reverse()].map((point) => ({
      ...point, ...parts(point.architecture), latency: point.latency_ms,
      loss: point[`loss_${loss}`] ?? point.loss, isOn: on.has(point), isBest: goal in BEST && point === ranked[0],
    }));
    const axes = axesOf(lines, loss);
    const root = svg("svg", {
      class: "parallel", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img",
      "aria-label": `${lines.length} architectures` + (goal in BEST ? `; ${BEST[goal]} is ${ranked[0].architecture}` : ""),
    });
    root.append(svg("g", {}, lines.map((line) => path(line, axes))), ...axes.map(drawnAxis));
    root.addEventListener("click", (event) => {
      const id = event.target.dataset?.id;
      if (id) this.#choose(id);
    });
    show(this.#place, el("div", { class: "scroll" }, root));
    this.figure.dataset.drawn = "";
  }

  #chosen(ranked, front) {
    const select = {
      top: () => ranked.slice(0, Math.max(1, Math.ceil(ranked.length / 10))),
      pareto: () => ranked.filter((p) => front.has(p.architecture)),
      picked: () => ranked.filter((p) => p.source !== "random"),
      none: () => [],
    }[this.#focus.value];
    return new Set(select().slice(0, MOST_LINES));
  }
}

function axesOf(lines, loss) {
  const names = [...STEPS, "latency", "loss", "reward"];
  const gap = (WIDTH - MARGIN.left - MARGIN.right) / (names.length - 1);
  const labels = { latency: "latency (ms)", loss: `${loss} loss` };
  return names.map((name, i) => {
    const values = [...new Set(lines.map((line) => line[name]))];
    const stepped = STEPS.includes(name);
    if (stepped) values.sort((a, b) => (typeof a === "number" ? a - b : a.localeCompare(b)));
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const share = stepped
      ? (value) => (values.length > 1 ? values.indexOf(value) / (values.length - 1) : 0.5)
      : (value) => (high > low ? (value - low) / (high - low) : 0.5);
    const span = HEIGHT - MARGIN.top - MARGIN.bottom;
    return {
      name, stepped, label: labels[name] ?? name, x: MARGIN.left + i * gap,
      y: (value) => MARGIN.top + span * (1 - share(value)),
      ticks: stepped ? values : [low, (low + high) / 2, high],
    };
  });
}

function path(line, axes) {
  const points = axes.map((axis) => {
    // Lines through the same value lie a little apart, each at a place of its own.
    const spread = axis.stepped ? ((hash(line.architecture + axis.name) % 100) / 100 - 0.5) * 14 : 0;
    return `${axis.x.toFixed(1)},${(axis.y(line[axis.name]) + spread).toFixed(1)}`;
  });
  return svg(
    "path",
    { class: "path", d: `M${points.join("L")}`, "data-on": line.isOn, "data-best": line.isBest, "data-id": line.id },
    svg("title", {}, `${line.architecture}, reward ${fixed(line.reward)}`),
  );
}

function drawnAxis({ x, y, label, ticks, stepped, name }) {
  const text = (value) => (stepped ? String(value) : fixed(value, name === "latency" ? 1 : 2));
  return svg(
    "g",
    {},
    svg("line", { class: "axis", x1: x, x2: x, y1: MARGIN.top - 6, y2: HEIGHT - MARGIN.bottom + 6 }),
    svg("text", { class: "label", x, y: 14, "text-anchor": "middle" }, label),
    ticks.map((tick) => svg("text", { x: x + 6, y: y(tick) + 4 }, text(tick))),
  );
}

function hash(text) {
  let value = 7;
  for (const letter of text) value = (value * 31 + letter.charCodeAt(0)) | 0;
  return Math.abs(value);
}
