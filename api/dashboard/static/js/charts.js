// Plotly in the colours of the page, in both of its modes.

import { el } from "./dom.js";

let library = null;

/** Load Plotly once. */
function plotly() {
  library ??= new Promise((done, failed) => {
    // Plotly writes style elements of its own, which our policy forbids, unless it finds these:
    // the rules that it needs are in charts.css.
    const placeholders = [
      "plotly.js-style-global",
      "9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53", // its maps; we have none
    ];
    for (const id of placeholders) {
      document.head.append(el("meta", { id, class: "no-inline-styles" }));
    }
    const script = el("script", { src: "/static/plotly.min.js" });
    script.addEventListener("load", () => done(window.Plotly));
    script.addEventListener("error", () => {
      library = null; // the next chart asks again
      failed(new Error("The charts could not be loaded."));
    });
    document.head.append(script);
  });
  return library;
}

/** The value of a colour of the page. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export const seriesColour = (index) => colour(`series-${(index % 4) + 1}`);

/** A curve: `more` of Plotly's attributes go before those that are usual here. */
export const curve = (name, x, y, line, more = {}) => ({ type: "scatter", mode: "lines", name, x, y, line: { width: 2, ...line }, ...more });

/** The same colour, partly transparent. */
export function faded(value, share) {
  const byte = Math.round(share * 255).toString(16).padStart(2, "0");
  return `${value}${byte}`;
}

function axis(given) {
  return {
    gridcolor: colour("line"),
    linecolor: colour("line-strong"),
    zeroline: false,
    ticks: "",
    automargin: true,
    fixedrange: true,
    ...given,
    title: { standoff: 10, ...given?.title },
  };
}

function layoutOf(given) {
  const { xaxis, yaxis, yaxis2, ...rest } = given;
  const font = { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("ink-soft") };
  return {
    font,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 8, r: 12, t: 8, b: 8 },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)" },
    hoverlabel: {
      bgcolor: colour("surface"),
      bordercolor: colour("line-strong"),
      font: { ...font, color: colour("ink") },
    },
    hovermode: "closest",
    dragmode: false,
    showlegend: true,
    xaxis: axis(xaxis),
    yaxis: axis(yaxis),
    ...(yaxis2 && { yaxis2: axis({ ...yaxis2, showgrid: false }) }),
    ...rest,
  };
}

const CONFIG = { responsive: true, displayModeBar: false, displaylogo: false, scrollZoom: false };

/** A chart in a figure; `build(data)` returns `{traces, layout, label}` from any data. */
export class Chart {
  #figure;
  #plot;
  #build;
  #data = null;
  #drawn = false;

  constructor(figure, build, onChoose = null) {
    this.#figure = figure;
    this.#plot = figure.querySelector("[data-plot]");
    this.#build = build;
    this.onChoose = onChoose;
    this.#plot.append(el("div", { class: "skeleton" }));
    document.addEventListener("themechange", () => this.#data && this.update(this.#data));
  }

  /** Draw anew; without traces the chart says why it is empty. */
  async update(data) {
    this.#data = data;
    const { traces, layout, label, empty } = this.#build(data);
    if (empty) {
      this.#name(null);
      if (this.#drawn) window.Plotly.purge(this.#plot);
      this.#drawn = false;
      this.#plot.replaceChildren(el("div", { class: "empty slim" }, empty));
      return;
    }
    let Plotly;
    try {
      Plotly = await plotly();
    } catch (error) {
      this.fail(error);
      return;
    }
    this.#name(label);
    if (!this.#drawn) this.#plot.replaceChildren();
    await Plotly.react(this.#plot, traces, layoutOf(layout), CONFIG);
    if (!this.#drawn && this.onChoose) {
      this.#plot.on("plotly_click", (event) => this.onChoose(event.points[0]));
    }
    this.#drawn = true;
    this.#figure.dataset.drawn = "";
  }

  /** What is drawn is a picture with a name to a screen reader; what is said in its place is text. */
  #name(label) {
    if (label === null) {
      for (const attribute of ["role", "aria-label"]) this.#plot.removeAttribute(attribute);
      return;
    }
    this.#plot.setAttribute("role", "img");
    this.#plot.setAttribute("aria-label", label ?? "");
  }

  /** Say in place of the chart that it could not be filled. */
  fail(error) {
    if (this.#drawn) return; // what is drawn stays
    this.#name(null);
    this.#plot.replaceChildren(el("div", { class: "notice bad", role: "alert" }, error.message));
  }
}
