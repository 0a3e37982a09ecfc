// The head of a search's page: state, progress, what is left to do, the best so far.

import { byId, el, problem, show } from "../dom.js";
import { duration, fixed, millions, moment, ms, percent, plural, whole } from "../format.js";
import { actionButtons, bar, chip, tiles } from "../parts.js";

/** Show a search; `changed` is called after its state was changed by a button. */
export function showSummary(search, episodes, { path, changed }) {
  const focused = document.activeElement?.dataset?.action;
  document.title = `${search.name} · kdnas`;
  const failed = (error) => show(byId("problem"), problem(error));
  const head = el(
    "div",
    { class: "head" },
    el(
      "div",
      {},
      el("div", { class: "title" }, el("h1", {}, search.name), chip(search.status)),
      el("p", { class: "muted" }, about(search)),
    ),
    el(
      "div",
      { class: "actions" },
      el("a", { class: "button", href: `/compare?search=${encodeURIComponent(search.id)}` }, "Compare"),
      actionButtons(path, search.status, changed, failed),
    ),
  );
  const error = search.error && el("p", { class: "notice bad", role: "alert" }, search.error);
  const warnings = search.warnings.map((text) => el("p", { class: "notice warn" }, text));
  show(byId("summary"), head, error, warnings, progress(search, episodes), figures(search));
  if (focused) byId("summary").querySelector(`[data-action="${focused}"]`)?.focus();
}

function about(search) {
  const { teacher, corpus, objective, controller } = search.spec;
  return [
    `teacher ${teacher.ref}`,
    `text ${corpus.source.join(", ")}`,
    `objective ${objective.name}`,
    `strategy ${controller.strategy}`,
    search.started_at ? `started ${moment(search.started_at)}` : `asked for ${moment(search.created_at)}`,
  ].join(" · ");
}

function progress(search, episodes) {
  const asked = search.spec.controller;
  const total = asked.episodes * asked.candidates;
  const done = search.num_candidates_finished;
  const share = search.status === "succeeded" ? 1 : done / total;
  const left = search.status === "running" ? eta(search, episodes) : null;
  const time = search.finished_at
    ? `took ${duration(new Date(search.finished_at) - new Date(search.started_at ?? search.created_at))}`
    : left && `about ${left} left`;
  return el(
    "div",
    {},
    el(
      "div",
      { class: "progress-row" },
      el(
        "span",
        {},
        `Episode ${whole(Math.min(search.num_episodes_finished + (search.status === "running" ? 1 : 0), asked.episodes))} of ${whole(asked.episodes)}`,
        ` · ${whole(done)} of ${plural(total, "candidate")}`,
      ),
      time && el("span", { "data-eta": true }, time),
    ),
    bar(share, "Progress of the search"),
  );
}

/** What the last episodes took, times what is left of them. */
function eta(search, episodes) {
  const finished = episodes.filter((e) => e.finished_at && e.started_at).slice(-3);
  if (!finished.length) return null;
  const each =
    finished.reduce((sum, e) => sum + (new Date(e.finished_at) - new Date(e.started_at)), 0) /
    finished.length;
  const current = episodes.find((e) => !e.finished_at);
  const begun = current?.num_candidates ? current.num_finished / current.num_candidates : 0;
  const left = search.spec.controller.episodes - search.num_episodes_finished - begun;
  return duration(each * Math.max(0, left));
}

function figures(search) {
  const { best, summary } = search;
  const share = best?.latency_ratio ?? summary?.best?.[0]?.latency_ratio;
  const small = (text) => el("small", {}, ` ${text}`);
  return tiles([
    ["Best reward", fixed(best?.reward)],
    ["Architecture", best?.architecture?.replaceAll(",", ", ") ?? "–"],
    ["Loss", fixed(best?.loss), small(search.spec.reward.loss)],
    ["Latency", ms(best?.latency_ms), share == null ? null : small(`${percent(share)} of the teacher's`)],
    ["Explored", whole(summary?.explored), small("architectures")],
    [
      "Of these",
      `${whole(summary?.trained)}`, small("trained"),
      summary?.reused ? [` ${whole(summary.reused)}`, small("known")].flat() : null,
      summary?.failed ? [` ${whole(summary.failed)}`, small("failed")].flat() : null,
    ].flat(),
  ]);
}
