// The head of a search's page: state, progress, what is left to do, the best so far.

import { byId, el, problem, show } from "../dom.js";
import { fixed, millions, moment, ms, percent, plural, whole } from "../format.js";
import { actionButtons, bar, chip, tiles } from "../parts.js";

const standing = byId("job"); // stays when the rest is shown anew

/** Show a search; `changed` is called after its state was changed by a button. */
export function showSummary(search, { path, changed }) {
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
  show(byId("summary"), head, standing, error, warnings, progress(search), figures(search));
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

function progress(search) {
  const asked = search.spec.controller;
  const total = asked.episodes * asked.candidates;
  const done = search.num_candidates_finished;
  const share = search.status === "succeeded" ? 1 : done / total;
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
    ),
    bar(share, "Progress of the search"),
  );
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
