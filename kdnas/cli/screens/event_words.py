"""Events in words: those that the dashboard uses (``api/dashboard/static/js/parts.js``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kdnas.db.records import EventRecord

NONE: Final = "–"
Payload = Mapping[str, Any]


def in_words(event: EventRecord) -> str | None:
    """Say what happened in one line; None where nobody wants to hear of it.

    What every kind of job tells alike has words for kinds of other packages, too.
    """
    words, kind = SENTENCES.get(event.type), event.kind or event.payload.get("kind")
    if words is None and kind is not None and event.type.startswith(f"{kind}_"):
        words = OF_EVERY_KIND.get(event.type.removeprefix(f"{kind}_"))
    if words is None:
        return None
    by = f", by {event.payload['by']}" if event.payload.get("by") else ""
    return " ".join(words(event.payload).split()) + by


def fixed(value: float | None, digits: int = 3) -> str:
    """A number with so many digits after the point."""
    return NONE if value is None else f"{value:,.{digits}f}".replace("-", "−")


def _because(p: Payload, key: str = "error") -> str:
    return f": {p[key]}" if p.get(key) else ""


def _at_once(p: Payload) -> str:
    return " at once" if p.get("at_once") else ""


def _ms(value: float | None) -> str:
    return NONE if value is None else f"{fixed(value, 2 if value < 10 else 1)} ms"


def _created(p: Payload) -> str:
    said = f"Asked for as {p['name']}" if p.get("name") else "Asked for"
    return f"{said}: {p['architecture']}" if p.get("architecture") else said


def _preparing(p: Payload) -> str:
    share = p.get("share")
    return p["text"] if share is None else f"{p['text']} ({round(100 * share)} %)"


def _interrupted(p: Payload) -> str:
    deaths = p["deaths"]
    return f"Interrupted: {p['reason']}" + (f", {deaths} times at this place" if deaths > 1 else "")


def _episode_started(p: Payload) -> str:
    epsilon = "" if p.get("epsilon") is None else f", ε {fixed(p['epsilon'], 2)}"
    return f"Episode {p['episode']} began with {p['num_candidates']} candidates{epsilon}"


def _candidate_finished(p: Payload) -> str:
    if p["status"] == "failed":
        return f"{p['architecture']} failed{_because(p)}"
    if p["status"] == "stopped":
        return f"{p['architecture']} {p['note']}"
    return (
        f"{p['architecture']}: reward {fixed(p['reward'])}, loss {fixed(p['loss_relative'])}, "
        f"{_ms(p['latency_ms'])}" + (", known before" if p.get("reused") else "")
    )


def _episode_finished(p: Payload) -> str:
    loss = p.get("controller_loss")
    told = "" if loss is None else f"; the controller's loss is {fixed(loss, 4)}"
    return f"Episode {p['episode']} ended{told}"


def _distillation_progress(p: Payload) -> str:
    total, loss, relative = p.get("total_steps"), p.get("loss"), p.get("relative")
    said = f"Step {fixed(p['step'], 0)} of {fixed(total, 0)}" if total else "As it starts"
    said += "" if loss is None else f", loss {fixed(loss, 4)}"
    return said if relative is None else f"{said}, held-out loss {fixed(relative)}"


def _task_trial(p: Payload) -> str:
    beta = "" if p.get("beta") is None else f", β {p['beta']}"
    point = f"batch {p['batch_size']}, rate {p['learning_rate']}{beta}"
    ending = " diverged" if p["held_out"] is None else f": held out {fixed(p['held_out'])}"
    return f"Trial {p['done']} of {p['total']} of the grid of {p['method']}: {point}{ending}"


def _task_run(p: Payload) -> str:
    called = f"{p['method']} seed {p['seed']}"
    if p.get("error"):
        return f"{called} failed{_because(p)}"
    return f"{called}: score {fixed(p['main'])}, held out {fixed(p['held_out'])}"


def _pipeline_members(p: Payload) -> str:
    chosen = (m for m in p["members"] if m["architecture"] and m["role"] != "undistilled")
    return f"Chosen: {'; '.join(m['architecture'] for m in chosen)}"


SENTENCES: Final[Mapping[str, Callable[[Payload], str]]] = {
    "episode_started": _episode_started,
    "attempts_started": lambda p: f"Training {len(p['candidates'])} together on {p['worker']}",
    "attempts_interrupted": lambda p: f"{len(p['candidates'])} interrupted{_because(p, 'reason')}",
    "candidate_finished": _candidate_finished,
    "episode_finished": _episode_finished,
    "distillation_progress": _distillation_progress,
    "task_distillation_trial": _task_trial,
    "task_distillation_run": _task_run,
    "pipeline_status": lambda p: f"The pipeline is {p['status']}{_because(p)}",
    "pipeline_stage": lambda p: (
        "All stages are over" if p["stage"] == "done" else f"Stage: {p['stage']}"
    ),
    "pipeline_members": _pipeline_members,
    "evaluation_created": lambda p: f"{p['task']}, seed {p['seed']}: asked for",
    "evaluation_status": lambda p: f"{p['task']}, seed {p['seed']}: now {p['status']}{_because(p)}",
}
"""Type of an event → what it says of its payload."""

OF_EVERY_KIND: Final[Mapping[str, Callable[[Payload], str]]] = {
    "created": _created,
    "status": lambda p: f"Now {p['status']}{_at_once(p)}{_because(p)}",
    "preparing": _preparing,
    "warning": lambda p: f"Warning: {p['text']}",
    "renamed": lambda p: f"Now called {p['name']}",
    "noted": lambda p: f"Note: {p['note']}" if p["note"] else "Its note was taken away",
    "prioritised": lambda p: f"Priority: {p['priority']}",
    "labelled": lambda p: f"Labels: {', '.join(p['labels']) or 'none'}",
    "deleted": lambda p: f"The {p['kind'].replace('_', ' ')} {p['name'] or p['job']} was deleted",
    "interrupted": _interrupted,
}
"""End of the type of an event that jobs of all kinds have → what it says of its payload."""
