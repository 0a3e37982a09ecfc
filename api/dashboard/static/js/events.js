// What happens, as it happens. One stream for a page in sight; a lost one is taken up where it broke
// off, and so is that of a page that was out of sight: browsers open six connections to a service at
// a time, and streams of tabs in the background would leave none for the page that is looked at.

import { get } from "./api.js";
import { byId } from "./dom.js";

const OF_EVERY_KIND = ["created", "status", "preparing", "progress", "warning", "interrupted", "renamed", "noted", "labelled", "prioritised", "deleted"];
const OF_SOME = [
  "episode_started", "attempts_started", "attempts_interrupted", "candidate_finished", "episode_finished",
  "task_distillation_trial", "task_distillation_run", "pipeline_stage", "pipeline_members",
  "webhook_delivered", "webhook_given_up",
];
const TYPES = [
  ...Object.keys(JSON.parse(document.body.dataset.kinds)).flatMap((kind) => OF_EVERY_KIND.map((what) => `${kind}_${what}`)),
  ...OF_SOME,
];
const RETRY_MS = 2000;

/**
 * Follow events.
 *
 * @param {object} subject `{job: id}`, a job with its parts, or `{}` for all.
 * @param {number} since number of the event after which to begin.
 * @param {(event: object, isNew: boolean) => void} onEvent called in order, once for each;
 *   `isNew` is false for what had happened when the page was made.
 * @param {() => void} onBack called when a lost connection is there again.
 * @param {() => void} onGone called when the job was deleted while nobody listened.
 */
export function follow(subject, since, onEvent, onBack = () => {}, onGone = () => {}) {
  const madeAt = Number(document.body.dataset.since);
  let last = since;
  let lost = false;
  let gone = false; // the job: nothing more will happen to it
  let source = null;

  const take = (message) => {
    const event = JSON.parse(message.data);
    if (event.id <= last) return;
    last = event.id;
    onEvent(event, event.id > madeAt);
  };

  const close = () => {
    source?.close();
    source = null;
  };

  const open = () => {
    if (source !== null || gone || document.hidden) return;
    const query = new URLSearchParams({ ...subject, since: String(last) });
    source = new EventSource(`/api/v1/events?${query}`);
    source.addEventListener("open", () => {
      say("live");
      if (lost) onBack();
      lost = false;
    });
    source.addEventListener("error", async () => {
      lost = true;
      // The browser tries again by itself unless the answer was no stream at all. It would then
      // ask with the first `since`; the stream's own numbering sees to the rest.
      if (source?.readyState !== EventSource.CLOSED) {
        say("lost");
        return;
      }
      close();
      const refusal = await refusalOf(subject);
      gone = [404, 409].includes(refusal); // there is none, or several have the name
      if (gone) {
        // It may have been lost before: the service answers, and there is nothing to try again.
        byId("live").hidden = byId("banner").hidden = true;
        if (refusal === 404) onGone();
        return;
      }
      say("lost");
      setTimeout(open, RETRY_MS);
    });
    for (const type of TYPES) source.addEventListener(type, take);
  };

  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  open();
}

/** The status by which a job is refused, if it is; a session that is over leads to the login from here. */
async function refusalOf({ job }) {
  try {
    await get(job ? `/jobs/${encodeURIComponent(job)}` : "/session");
    return null;
  } catch (error) {
    return error.status;
  }
}

function say(state) {
  const live = byId("live");
  live.hidden = false;
  live.dataset.state = state;
  live.querySelector(".live-text").textContent = state === "live" ? "live" : "offline";
  byId("banner").hidden = state === "live";
}
