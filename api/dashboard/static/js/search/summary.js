// The head of a search's page: state, progress, what is left to do, the best so far.

import { el } from "../dom.js";
import { fixed, moment, ms, msRange, percent, plural, whole } from "../format.js";
import { showHead } from "../job.js";
import { bar, strategyOf, tiles } from "../parts.js";

/** Show a search; `changed` is called after its state was changed by a button. */
export function showSummary(search, { path, changed }) {
  const buttons = el("a", { class: "button", href: `/compare?search=${encodeURIComponent(search.id)}` }, "Compare");
  const warnings = search.warnings.map((text) => el("p", { class: "notice warn" }, text));
  showHead(search, { path, about: about(search), changed, buttons }, ...warnings, progress(search), figures(search));
}

function about(search) {
  const { teacher, corpus, objective, controller, goal = "reward" } = search.spec;
  return [
    `teacher ${teacher.ref}`,
    `text ${corpus.source.join(", ")}`,
    `objective ${objective.name}`,
    `goal ${goal}`,
    `strategy ${strategyOf(controller)}`,
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

const small = (text) => el("small", {}, ` ${text}`);

/** What was found, by what the goal of the search goes by. */
function findings({ goal, best, hypervolume, summary, spec }) {
  const loss = small(spec.reward.loss);
  if (goal === "front") {
    const [fastest, slowest] = [summary?.pareto?.at(0), summary?.pareto?.at(-1)];
    const range = fastest && `${percent(fastest.latency_ratio)} to ${percent(slowest.latency_ratio)} of the teacher's`;
    return [
      ["Hypervolume", fixed(hypervolume), small("over halvings of latency")],
      ["On the front", whole(summary?.pareto?.length), small("architectures")],
      ["Lowest loss", fixed(slowest?.loss), loss],
      ["Latencies", fastest ? msRange(fastest.latency_ms, slowest.latency_ms) : "–", range ? small(range) : null],
    ];
  }
  const share = summary?.best?.[0]?.latency_ratio;
  return [
    goal === "limit" ? ["Lowest loss", fixed(best?.loss), small(`${spec.reward.loss}, within the limits`)] : ["Best reward", fixed(best?.reward)],
    ["Architecture", best?.architecture?.replaceAll(",", ", ") ?? "–"],
    goal === "limit" ? null : ["Loss", fixed(best?.loss), loss],
    ["Latency", ms(best?.latency_ms), share == null ? null : small(`${percent(share)} of the teacher's`)],
  ].filter(Boolean);
}

function figures(search) {
  const { summary } = search;
  return tiles([
    ...findings(search),
    ["Explored", whole(summary?.explored), small("architectures")],
    [
      "Of these",
      `${whole(summary?.trained)}`, small("trained"),
      summary?.reused ? [` ${whole(summary.reused)}`, small("known")].flat() : null,
      summary?.stopped ? [` ${whole(summary.stopped)}`, small("stopped early")].flat() : null,
      summary?.failed ? [` ${whole(summary.failed)}`, small("failed")].flat() : null,
    ].flat(),
    summary?.steps_saved == null ? null : ["Rungs saved", percent(summary.steps_saved), small("of the steps")],
  ].filter(Boolean));
}
