// The page of a search: it reads the state once, then follows the search's events.

import { get, getAll, tried } from "../api.js";
import { byId, problem, show, throttled } from "../dom.js";
import { jobFrame } from "../job.js";
import { CandidateTable } from "../search/candidates.js";
import { Coverage } from "../search/coverage.js";
import { Panel } from "../search/panel.js";
import { Parallel } from "../search/parallel.js";
import { episodeChart, predictedChart, tradeoffChart } from "../search/plots.js";
import { Ranking } from "../search/ranking.js";
import { Sureness } from "../search/sureness.js";
import { showSummary } from "../search/summary.js";

const reference = document.body.dataset.subject;
const path = `/searches/${encodeURIComponent(reference)}`;
const MOST_EPISODES = 10_000;

const panel = new Panel(reference);
const chooseId = (id) => panel.open(id);
const progress = episodeChart(byId("episodes"));
const tradeoff = tradeoffChart(byId("tradeoff"), chooseId);
const predicted = predictedChart(byId("predicted"), chooseId);
const parallel = new Parallel(byId("parallel"), chooseId);
const coverage = new Coverage(byId("coverage"), path);
const candidates = new CandidateTable(byId("candidates"), path, chooseId);
const ranking = new Ranking(byId("ranking"), path, reference);
const sureness = new Sureness(byId("sureness"), path);
const watch = jobFrame(reference, () => readState());

let search = null;
let episodes = [];
let shown = null; // in the chart of loss and latency
let sure = { noise: null, like: new Set() }; // of the last analysis

async function readSearch() {
  const before = search?.status;
  search = await get(path);
  if (shown && search.status !== before) await predicted.update({ points: shown.points, search });
  showSummary(search, { path, changed: readState });
  panel.search = search;
}

async function readEpisodes() {
  episodes = await getAll(`${path}/episodes`, {}, MOST_EPISODES);
  candidates.offer(episodes.flatMap((e) => Object.keys(e.by_source)));
  const { goal } = search ?? (await get(path));
  await progress.update({ goal, episodes });
}

async function readPoints() {
  const [{ items: points }, { items: front }] = await Promise.all([
    get(`${path}/points`),
    get(`${path}/pareto`),
  ]);
  const loss = search?.spec?.reward?.loss ?? "relative";
  shown = { points, front, loss, goal: search?.goal };
  await Promise.all([tradeoff.update({ ...shown, ...sure }), predicted.update({ points, search })]);
  parallel.update(points, front, loss, search?.goal ?? "reward");
}

async function readSureness() {
  const found = await sureness.load();
  if (found === null) return;
  const like = found.within_noise ?? [];
  sure = { noise: found.noise, like: new Set(like) };
  candidates.mark(search?.goal, like);
  if (found.noise && shown) await tradeoff.update({ ...shown, ...sure });
}

async function readHead() {
  await readSearch();
  byId("problem").replaceChildren();
}

const readState = throttled(
  () =>
    tried(readHead, (error) => {
      show(byId("problem"), problem(error, readState));
      if (error.status === 404) byId("summary").replaceChildren();
    }),
  1000,
);
const readProgress = throttled(() => tried(readEpisodes, (error) => progress.fail(error)), 1500);
const readCharts = throttled(
  () =>
    tried(readPoints, (error) => {
      for (const chart of [tradeoff, predicted, parallel]) chart.fail(error);
    }),
  2500,
);
const readCoverage = throttled(() => coverage.load(), 5000);
const readTable = throttled(() => candidates.load(), 3000);
const readRanking = throttled(() => ranking.load(), 4000);
const readHowSure = throttled(readSureness, 30_000); // it takes seconds to find

function readAll() {
  readState();
  readProgress();
  readCharts();
  readCoverage();
  readTable();
  readRanking();
  readHowSure();
}

function happened(event) {
  readState();
  if (event.type.startsWith("episode") || event.type === "candidate_finished") readProgress();
  if (event.type === "candidate_finished") {
    panel.renew(event.payload.candidate);
    readCharts();
    readCoverage();
    readRanking();
  }
  if (event.type !== "search_preparing") readTable();
  if (event.type === "episode_finished") readHowSure();
}

let isThere = true;
await tried(readSearch, (error) => {
  show(byId("problem"), problem(error, () => location.reload()));
  byId("summary").replaceChildren();
  isThere = error.status !== 404;
  if (isThere) return;
  for (const id of ["charts", "sureness", "ranking", "candidates", "log"]) byId(id).hidden = true;
});
if (isThere) {
  readAll();
  watch(search?.id ?? reference, happened, readAll);
}
