// The page of a full distillation: its curve grows as it trains.

import { get, tried } from "../api.js";
import { Chart, colour, curve } from "../charts.js";
import { byId, el, isOperator, problem, show, throttled } from "../dom.js";
import { fixed, moment, whole } from "../format.js";
import { jobFrame, showHead } from "../job.js";
import { bar, facts, tiles } from "../parts.js";
import { showScores } from "../scores.js";

const SCORES_MS = 10_000;
const reference = document.body.dataset.subject;
const path = `/distillations/${encodeURIComponent(reference)}`;
const placeOfScores = byId("scores").querySelector("[data-scores]");
let shown = null; // the distillation as it was read last

const training = new Chart(byId("training"), ({ points }) => {
  if (!points.length) return { empty: shown?.total === 0 ? "Nothing was trained." : "The curve begins with the first steps." };
  const x = points.map((p) => p.step);
  return {
    traces: [
      curve("learning rate", x, points.map((p) => p.learning_rate), { color: colour("series-dim"), width: 1, dash: "dot" }, {
        yaxis: "y2", hovertemplate: "%{y:.2e}<extra>learning rate</extra>",
      }),
      curve("training loss", x, points.map((p) => p.loss), { color: colour("series-1") }, { hovertemplate: "step %{x}: %{y:.4f}<extra></extra>" }),
    ],
    layout: {
      xaxis: { title: { text: "step" } },
      yaxis: { title: { text: "training loss" } },
      yaxis2: { title: { text: "learning rate" }, overlaying: "y", side: "right", rangemode: "tozero", tickformat: ".1~e", nticks: 4 },
    },
    label: `Training loss; at step ${whole(points.at(-1).step)} it is ${fixed(points.at(-1).loss, 4)}`,
  };
});

const heldOut = new Chart(byId("held-out"), ({ held_out: readings }) => {
  if (!readings.length) return { empty: "The held-out text is read with each checkpoint." };
  const x = readings.map((r) => r.step);
  const line = (name, tint) =>
    curve(name, x, readings.map((r) => r[name]), { color: colour(tint) }, {
      mode: "lines+markers", marker: { size: 5 }, hovertemplate: `step %{x}: %{y:.3f}<extra>${name}</extra>`,
    });
  return {
    traces: [line("relative", "series-1"), line("output", "series-3")],
    layout: { xaxis: { title: { text: "step" } }, yaxis: { title: { text: "held-out loss" } } },
    label: `Held-out loss; at step ${whole(x.at(-1))} the relative loss is ${fixed(readings.at(-1).relative)}`,
  };
});

function showSummary(it) {
  const origin = it.search_id ? ["from ", el("a", { href: `/searches/${it.search_id}` }, "its search"), " · "] : [];
  const begun = it.started_at ? `started ${moment(it.started_at)}` : `asked for ${moment(it.created_at)}`;
  const { total } = it;
  const done = it.done ?? 0;
  const share = it.status === "succeeded" ? 1 : total ? done / total : 0;
  const steps = total ? `Step ${whole(done)} of ${whole(total)}` : total === 0 ? "Undistilled: the student as it starts" : "Not begun yet";
  const isMade = it.status === "succeeded" && it.output;
  showHead(
    it,
    { path, about: [`${it.architecture} · `, ...origin, begun], changed: readState, buttons: evaluateButton(it) },
    el("div", { class: "progress-row" }, el("span", {}, steps)),
    bar(share, "Progress of the distillation"),
    isMade ? el("p", { class: "notice" }, "The student is in ", el("code", {}, it.output)) : null,
    tiles([
      ["Architecture", it.architecture.replaceAll(",", ", ")],
      ["Relative loss", fixed(it.losses?.relative), el("small", {}, " held out")],
      ["Output loss", fixed(it.losses?.output), el("small", {}, " held out")],
      ["Steps", whole(done), total ? el("small", {}, ` of ${whole(total)}`) : null],
    ]),
  );
}

function evaluateButton({ id, status, output }) {
  if (!isOperator() || status !== "succeeded" || !output) return null;
  const query = new URLSearchParams({ model: `distillation:${id}` });
  return el("a", { class: "button primary", href: `/evaluations/new?${query}` }, "Evaluate");
}

// Whether scores come, or a pipeline may ask for some: what happens to those is told on its page.
let areAwaited = false;
let drawn = null; // of which results
setInterval(() => !document.hidden && areAwaited && renewScores(), SCORES_MS);

/** Its scores over each suite, beside its teacher's where there are such. */
async function readScores() {
  const { items } = await get("/evaluations/models");
  const own = items.filter((m) => m.distillation_id === shown?.id);
  byId("scores").hidden = own.length === 0;
  areAwaited = own.some((m) => m.num_unfinished) || (own.length === 0 && shown.parent_id !== null);
  if (JSON.stringify(own) === drawn) return;
  drawn = JSON.stringify(own);
  const parts = own.map((m) => {
    if (!m.num_succeeded) {
      return el("p", { class: "muted" }, `${m.suite}: `, el("a", { href: `/evaluations?${new URLSearchParams({ model: m.model, suite: m.suite, distillation: shown.id })}` }, m.num_unfinished ? "under way" : "without a result"));
    }
    const part = el("div", {});
    const teacher = shown.spec.teacher?.ref;
    const isThere = items.some((o) => o.model === teacher && o.suite === m.suite && o.num_succeeded);
    showScores(part, { model: `distillation:${shown.id}`, suite: m.suite, against: isThere ? [teacher] : [] }, m.suite);
    return part;
  });
  show(placeOfScores, parts);
}

const renewScores = throttled(
  () =>
    tried(readScores, (error) => {
      drawn = null;
      byId("scores").hidden = false;
      show(placeOfScores, problem(error, renewScores));
    }),
  1500,
);

function showSpec({ spec }) {
  if (!spec) return;
  const { teacher, corpus, objective, training: t } = spec;
  show(
    byId("spec"),
    facts(
      [
        ["Teacher", teacher.ref],
        ["Text", corpus.source.join(", ")],
        ["Objective", Object.entries(objective).filter(([, v]) => v !== null && typeof v !== "object").map(([k, v]) => (k === "name" ? v : `${k} ${v}`)).join(", ")],
        ["Length", t.steps === 0 ? "none, undistilled" : t.steps ? `${whole(t.steps)} steps` : `${t.epochs} passes over the text`],
        ["Batch", `${t.batch_size} sequences`],
        ["Peak learning rate", String(t.learning_rate)],
        ["Workers", String(t.num_workers)],
      ],
      true,
    ),
  );
}

async function read() {
  const [it, found] = await Promise.all([get(path), get(`${path}/curve`)]);
  byId("problem").replaceChildren();
  shown = it;
  showSummary(it);
  showSpec(it);
  await Promise.all([training.update(found), heldOut.update(found)]);
}

function failed(error) {
  show(byId("problem"), problem(error, readState));
  byId("summary").replaceChildren();
  for (const chart of [training, heldOut]) chart.fail(error);
}

const readState = throttled(() => tried(read, failed), 1500);
const watch = jobFrame(reference, readState);

function renew() {
  readState();
  renewScores();
}

try {
  await tried(read, failed);
} finally { // also where a chart has failed
  if (shown) renewScores();
  watch(shown?.id ?? reference, (event) => (event.type.startsWith("evaluation") ? renewScores : readState)(), renew);
}
