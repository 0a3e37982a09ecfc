// Up to four searches side by side.

import { get, getAll, tried } from "../api.js";
import { Chart, curve, seriesColour } from "../charts.js";
import { byId, el, problem, show, throttled } from "../dom.js";
import { follow } from "../events.js";
import { duration, fixed, millions, ms, percent, whole } from "../format.js";
import { chip, optionsOf, strategyOf } from "../parts.js";
import { bestOf, figureOf, figuresSoFar, foundBy, soFar } from "../search/found.js";
import { plainTable } from "../table.js";

const MOST = 4;
const DASHES = ["solid", "dash", "dot", "dashdot"]; // told apart without colour too
const MOST_OFFERED = 200;

const stepped = (i) => ({ color: seriesColour(i), dash: DASHES[i], shape: "hv" });

const best = new Chart(byId("best"), (all) => {
  const goals = [...new Set(all.map(({ search }) => search.goal))];
  if (goals.length > 1) {
    return { empty: `These searches have different goals (${goals.join(", ")}), and what each goes by cannot be put on one axis; their Pareto fronts can be compared.` };
  }
  const [goal] = goals;
  const traces = all.map(({ search, episodes }, i) => {
    let trained = 0;
    const known = episodes.filter((e) => e.best_reward != null);
    return curve(search.name, known.map((e) => (trained += e.num_finished)), figuresSoFar(goal, known), stepped(i), { hovertemplate: "%{y:.3f} after %{x} candidates<extra></extra>" });
  });
  if (traces.every((t) => !t.x.length)) return { empty: "None of them has a result yet." };
  return {
    traces,
    layout: { xaxis: { title: { text: "finished candidates" }, rangemode: "tozero" }, yaxis: { title: { text: soFar(goal) } } },
    label: `${soFar(goal)}: ${all.map(({ search }) => `${search.name} ${fixed(figureOf(search))}`).join(", ")}`,
  };
});

const fronts = new Chart(byId("fronts"), (all) => {
  const losses = [...new Set(all.map(({ search }) => search.spec.reward.loss))];
  if (losses.length > 1) {
    return { empty: `These searches go by different losses (${losses.join(", ")}), so that their Pareto fronts cannot be put on one axis.` };
  }
  const [loss] = losses;
  const traces = all.map(({ search, front }, i) =>
    curve(search.name, front.map((p) => p.latency_ms), front.map((p) => p[`loss_${loss}`]), stepped(i), {
      mode: "lines+markers", marker: { size: 7 },
      text: front.map((p) => p.architecture), hovertemplate: "%{text}<br>loss %{y:.3f}<br>%{x:.2f} ms<extra></extra>",
    }),
  );
  if (traces.every((t) => !t.x.length)) return { empty: "None of them has a Pareto front yet." };
  return {
    traces,
    layout: { xaxis: { title: { text: "latency (ms)" }, rangemode: "tozero" }, yaxis: { title: { text: `${loss} loss` } } },
    label: `Pareto fronts of ${loss} loss and latency`,
  };
});

const ROWS = [
  ["Status", ({ search }) => chip(search.status)],
  ["Found", ({ search }) => foundBy(search)],
  ["Best architecture", ({ search }) => bestOf(search)?.architecture ?? "–"],
  ["Its loss", ({ search }) => fixed(bestOf(search)?.loss)],
  ["Its latency", ({ search }) => ms(bestOf(search)?.latency_ms)],
  ["Architectures explored", ({ search }) => whole(search.summary?.explored)],
  ["Episodes", ({ search }) => `${whole(search.num_episodes_finished)} of ${whole(search.spec.controller.episodes)}`],
  ["Strategy", ({ search }) => strategyOf(search.spec.controller)],
  ["Its options", ({ search }) => optionsOf(search.spec.controller)],
  ["Teacher", ({ search }) => search.spec.teacher.ref],
  ["Objective", ({ search }) => search.spec.objective.name],
  ["Goal", ({ search }) => search.goal],
  ["Reward from", ({ search }) => `${search.spec.reward.loss} loss`],
  ["Price of latency", ({ search }) => (search.goal === "reward" ? priceOf(search.spec.reward) : "–")],
  ["Target latency β", ({ search }) => (search.goal === "reward" ? `${percent(search.spec.reward.beta)} of the teacher's` : "–")],
  ["Limits", ({ search }) => limitsOf(search.spec.limits)],
  ["Steps of a training", ({ search }) => whole(search.spec.proxy?.steps)],
  ["Rungs", ({ search }) => rungsOf(search.spec.proxy)],
  ["Text", ({ search }) => search.spec.corpus.source.join(", ")],
  ["Architectures of the space", ({ search }) => whole(search.space_size)],
  ["Time", ({ search }) => timeOf(search)],
];

const priceOf = (reward) => (reward.alpha == null ? percent(reward.latency_price) : `α ${fixed(reward.alpha, 2)}`);

function limitsOf({ max_latency_ratio: ratio, max_latency_ms: time, max_params_millions: size } = {}) {
  const bounds = [
    ratio == null ? null : `${percent(ratio)} of the teacher's latency`,
    time == null ? null : ms(time),
    size == null ? null : `${millions(size)} parameters`,
  ].filter(Boolean);
  return bounds.join(", ") || "–";
}

const rungsOf = ({ rungs, keep } = {}) => (rungs?.length ? `after ${rungs.join(", ")} steps, keep ${keep}` : "–");

function timeOf(search) {
  if (!search.started_at) return "–";
  const end = search.finished_at ? new Date(search.finished_at) : new Date();
  return duration(end - new Date(search.started_at));
}

function figures(all) {
  const name = ({ search }) => el("a", { href: `/searches/${search.id}` }, search.name);
  const columns = all.map((one) => ({ label: name(one), cell: ([, cell]) => cell(one) }));
  return plainTable([{ label: "", head: true, cell: ([label]) => label }, ...columns], ROWS, "The searches in figures");
}

// What must be the same for figures to mean the same. Preparing a search finds out the first of the
// ways to say it; where one of the searches has not been prepared, they differ by what was asked for.
const ALIKE = [
  ["goal", ({ goal }) => goal],
  ["reward", ({ goal, spec }) => (goal === "reward" ? spec.reward : spec.reward.loss)],
  ["teacher", ({ spec }) => spec.teacher.fingerprint, ({ spec }) => spec.teacher.ref],
  ["objective", ({ spec }) => spec.objective],
  ["text", ({ spec }) => spec.corpus.fingerprint, ({ spec }) => spec.corpus.source],
  ["greatest length", ({ spec }) => spec.corpus.max_length],
  ["steps", ({ spec }) => spec.proxy?.steps, ({ spec: { proxy } }) => [proxy?.steps, proxy?.epochs, proxy?.fraction]],
  ["learning rate", ({ spec }) => spec.proxy?.learning_rate],
  ["batch size", ({ spec }) => spec.proxy?.batch_size],
  ["start of students", ({ spec }) => spec.student?.init],
  ["search space", ({ spec, space_size: size }) => size && [spec.space, size], ({ spec }) => spec.space],
  ["limits", ({ spec }) => limitsOf(spec.limits)],
  ["latency table", ({ latency_profile: profile }) => profile, ({ spec }) => spec.latency && [spec.latency.device, spec.latency.threads, spec.latency.length, spec.latency.dtype]],
];

function differ(searches, ways) {
  const told = ways.map((way) => searches.map(way));
  const values = told.find((each) => each.every((value) => value != null)) ?? told.at(-1);
  return new Set(values.map((value) => JSON.stringify(value ?? null))).size > 1;
}

/** Why what was found may not be set beside each other, or null. */
function caution(all) {
  const searches = all.map(({ search }) => search);
  const names = ALIKE.filter(([, ...ways]) => differ(searches, ways)).map(([name]) => name);
  if (!names.length) return null;
  const last = names.pop();
  const listed = names.length ? `${names.join(", ")} and ${last}` : last;
  return el("p", { class: "notice warn" }, `These searches differ in ${listed}, so what they have found does not mean the same.`);
}

function chosen() {
  return [...new Set(new URLSearchParams(location.search).getAll("search"))].slice(0, MOST);
}

function showPickers(searches) {
  const now = chosen();
  const pickers = Array.from({ length: MOST }, (_, i) => {
    const known = searches.some((s) => s.id === now[i] || s.name === now[i]);
    const select = el(
      "select",
      { "data-picker": true },
      el("option", { value: "" }, "none"),
      now[i] && !known ? el("option", { value: now[i], selected: true }, now[i]) : null,
      searches.map((s) => el("option", { value: s.id, selected: s.id === now[i] || s.name === now[i] }, s.name)),
    );
    select.addEventListener("change", () => {
      const values = pickers.map((p) => p.querySelector("select").value).filter(Boolean);
      history.replaceState(null, "", `/compare?${new URLSearchParams(values.map((v) => ["search", v]))}`);
      load();
    });
    return el("label", { class: "field inline" }, el("span", {}, `Search ${i + 1}`), select);
  });
  show(byId("pickers"), pickers);
}

async function readOne(id) {
  const path = `/searches/${encodeURIComponent(id)}`;
  const [search, episodes, { items: front }] = await Promise.all([
    get(path),
    getAll(`${path}/episodes`),
    get(`${path}/pareto`),
  ]);
  return { search, episodes, front };
}

let last = 0; // number of the last question

async function load() {
  const asked = ++last;
  const ids = chosen();
  byId("nothing").hidden = ids.length > 0;
  byId("result").hidden = ids.length === 0;
  byId("problem").replaceChildren();
  if (!ids.length) return;
  const read = async () => {
    const all = await Promise.all(ids.map(readOne));
    if (asked !== last) return; // a later question is under way
    show(byId("problem"), caution(all));
    show(byId("figures"), figures(all));
    await Promise.all([best.update(all), fronts.update(all)]);
  };
  await tried(read, (error) => {
    if (asked !== last) return;
    byId("result").hidden = true;
    show(byId("problem"), problem(error, load));
  });
}

async function begin() {
  try {
    showPickers((await get("/searches", { limit: MOST_OFFERED, sort: "-created_at" })).items);
  } catch (error) {
    show(byId("problem"), problem(error, begin));
    return;
  }
  await load();
}

const reload = throttled(load, 3000);
begin();
const NEWS = ["episode_finished", "search_status", "search_renamed", "search_deleted"];
follow({}, Number(document.body.dataset.since), (event) => NEWS.includes(event.type) && reload(), reload);
