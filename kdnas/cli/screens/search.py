"""How a search looks: what it would train, how far it is, and its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from kdnas.cli.screens.console import Bar, console, say
from kdnas.cli.screens.times import span
from kdnas.cli.screens.working import WorkScreen
from kdnas.cli.tables.answers import answer, fact_lines
from kdnas.records import AttemptInterrupted, AttemptStarted, Candidate, GroupProgress
from kdnas.search.progress import (
    CandidateDone,
    EpisodeDone,
    EpisodeStarted,
    Progress,
    SearchDone,
    SearchStarted,
)

if TYPE_CHECKING:
    from api.inputs.preparation import Watchers
    from api.searches.run import PreparedSearch
    from kdnas.db.engine import Database
    from kdnas.specs.search import SearchSpec

TOP = 10


class SearchScreen(WorkScreen):
    """Turns what a search tells into lines and bars on stderr.

    Args:
        goal: of the search, which says in which words the best so far is told.
    """

    def __init__(self, goal: str = "reward") -> None:
        super().__init__()
        self._goal = goal
        self._groups: dict[tuple[str, ...], float] = {}
        self._waits = ""
        self._num_episodes = 0
        self._candidates = 0

    @property
    def watchers(self) -> Watchers:
        """What to give to ``run_stored_search``."""
        from api.inputs.preparation import Watchers

        return Watchers(self._on_latency, self._on_search, waiting=self._on_waiting)

    def _on_search(self, event: Progress) -> None:
        match event:
            case SearchStarted(num_states=num, num_allowed=allowed):
                self._close_bar()
                self._num_episodes = event.num_episodes
                limited = f", {allowed} within the limits" if allowed < num else ""
                say(f"space      {num} architectures{limited}")
            case EpisodeStarted():
                self._start_episode(event)
            case AttemptStarted():
                self._groups[event.candidate_ids] = 0.0
                if self._bar is None:
                    self._bar = Bar("  training", 1.0)
            case AttemptInterrupted():
                say(f"  {len(event.candidate_ids)} interrupted: {event.reason}; tried again")
            case GroupProgress(waits=waits) if waits:
                if waits != self._waits:
                    say(f"  {waits}")
                self._waits = waits
            case GroupProgress(step=step, total_steps=total):
                self._waits = ""
                self._groups[event.candidate_ids] = step / total
                if self._bar is not None:
                    share = sum(self._groups.values()) / len(self._groups)
                    self._bar.at(share, 1.0, f"step {step} of {total}")
            case CandidateDone():
                for ids in self._groups:  # it may have ended before its last step
                    if event.candidate.id in ids:
                        self._groups[ids] = 1.0
                say("  " + candidate_line(event.candidate))
            case EpisodeDone():
                self._end_episode(event)
            case SearchDone():
                self._close_bar()
                if event.reason:
                    say(event.reason)

    def _start_episode(self, event: EpisodeStarted) -> None:
        self._groups.clear()
        self._candidates = len(event.candidates)
        sources = Counter(candidate.source for candidate in event.candidates)
        who = ", ".join(f"{count} by {source}" for source, count in sources.items())
        epsilon = "" if event.epsilon is None else f"  ε {event.epsilon:.2f}"
        again = "  (taken up again)" if event.resumed else ""
        say(f"episode {event.number}/{self._num_episodes}{epsilon}  {who}{again}")

    def _end_episode(self, event: EpisodeDone) -> None:
        self._close_bar()
        parts = []
        if event.best is not None and event.best.reward is not None and self._goal in _SO_FAR:
            words, figure = _SO_FAR[self._goal]
            parts.append(f"{words} {event.best.architecture} with {figure(event.best.reward):.3f}")
        if event.predictions:
            miss = sum(abs(p - t) for p, t in event.predictions) / len(event.predictions)
            parts.append(f"predictions off by {miss:.3f}")
        if event.students_per_hour:
            parts.append(f"{event.students_per_hour:.0f} students/hour")
            left = (self._num_episodes - event.number) * self._candidates
            if left:
                parts.append(f"{span(left / event.students_per_hour * 3600)} left")
        if parts:
            say(f"  = {', '.join(parts)}")


def candidate_line(candidate: Candidate) -> str:
    """Return one candidate in a line."""
    name = f"{candidate.architecture!s:<24}"
    if candidate.status == "stopped":
        return f"{name} {candidate.note}"
    if candidate.status == "failed" or candidate.losses is None:
        return f"{name} failed: {candidate.error}"
    reward = candidate.predicted_reward
    predicted = "" if reward is None else f" (predicted {reward:.3f})"
    how = "looked up" if candidate.reused else "trained"
    note = f"  [{candidate.note}]" if candidate.note else ""
    return (
        f"{name} relative {candidate.losses.relative:.3f}  output {candidate.losses.output:.3f}  "
        f"{candidate.latency_ms:6.2f} ms  {candidate.params_millions:6.1f} M  "
        f"reward {candidate.reward:.3f}{predicted}  {candidate.source}, {how}{note}"
    )


def show_result(summary: Mapping[str, Any], *, to_stderr: bool) -> None:
    """Print what a search has found; the best states are left out where its goal is the front."""
    out = console if to_stderr else Console(highlight=False, soft_wrap=True)
    stopped = f", {summary['stopped']} stopped early" if summary["stopped"] else ""
    out.print(
        f"\nsearch {summary['name']}, goal {summary['goal']}: {summary['status']}, "
        f"{summary['explored']} explored ({summary['trained']} trained, "
        f"{summary['reused']} looked up, {summary['failed']} failed{stopped})"
    )
    if summary["steps_saved"] is not None:
        out.print(f"rungs saved {100 * summary['steps_saved']:.0f} % of the steps")
    if summary["error"]:
        out.print(summary["error"], markup=False)
    if not summary["best"]:
        return
    if summary["goal"] in _BEST:
        out.print(_states(_BEST[summary["goal"]], summary["best"][:TOP]))
    out.print(_states("Pareto front of loss and latency, fastest first", summary["pareto"]))
    if summary["goal"] == "front":
        out.print(
            f"hypervolume {summary['hypervolume']:.3f}: the share of the signal that is explained, "
            "added up over the halvings of the teacher's latency"
        )
    for budget in summary["budgets"]:
        best = budget["best"]
        out.print(
            f"lowest loss within {budget['latency_ms']:.2f} ms: {best['architecture']}  "
            f"L {best['loss']:.3f}, {best['latency_ms']:.2f} ms"
            + (f", reward {best['reward']:.3f}" if summary["goal"] == "reward" else "")
        )
    for source, figures in summary["baseline"].items():
        out.print(f"{figures['count']} {source} picks: {_worth(summary['goal'], figures)}")


def _worth(goal: str, figures: Mapping[str, float]) -> str:
    """What the picks of a source came to under a goal; a reward without a price is 1 − L."""
    best, mean = figures["best_reward"], figures["mean_reward"]
    if goal == "front":
        return f"hypervolume {figures['hypervolume']:.3f}"
    if goal == "limit":
        return f"lowest loss {1 - best:.3f}, mean {1 - mean:.3f}"
    return f"best reward {best:.3f}, mean {mean:.3f}"


def found_so_far(search: Mapping[str, Any]) -> str:
    """Say in a few words what a search in a list has found, by what its goal goes by."""
    best, volume = search["best"], search["hypervolume"]
    if search["goal"] == "front":
        return "nothing yet" if volume is None else f"hypervolume {volume:.3f}"
    if best is None:
        return "nothing yet"
    return (
        f"loss {best['loss']:.3f}" if search["goal"] == "limit" else f"reward {best['reward']:.3f}"
    )


_SO_FAR: Mapping[str, tuple[str, Callable[[float], float]]] = {
    "reward": ("best so far", lambda reward: reward),
    "limit": ("lowest loss so far", lambda reward: 1 - reward),  # without a price it is 1 − L
}
"""Goal → how the best candidate of a search at work is told; with another goal none is."""
_BEST = {"reward": "best by reward", "limit": "lowest loss within the limits"}
"""Goal → what the best states are the best by; with another goal none is."""
_COLUMNS = {
    "architecture": ("architecture", ""),
    "reward": ("reward", ".3f"),
    "L": ("loss", ".3f"),
    "output": ("output_loss", ".3f"),
    "start": ("loss_start", ".3f"),
    "ms": ("latency_ms", ".2f"),
    "of T": ("latency_ratio", ".2f"),
    "M par.": ("params_millions", ".1f"),
    "ep.": ("episode", ""),
    "by": ("source", ""),
}
"""Heading of a column → what of a state it shows, and how it is written."""
_WORDS = {"architecture", "by"}


def _states(title: str, states: Sequence[Mapping[str, Any]]) -> Table:
    """Lay states out in a table that fits eighty columns; `--json` has every figure."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column in _WORDS else "right", no_wrap=True)
    for state in states:
        found = ((state[key], form) for key, form in _COLUMNS.values())
        table.add_row(*("-" if value is None else format(value, form) for value, form in found))
    return table


def say_goal(spec: SearchSpec) -> None:
    """Say what a search is after, and who proposes."""
    say(f"goal       {spec.goal}, candidates by {spec.controller.strategy.name}")


def show_plan(prepared: PreparedSearch, database: Database, as_json: bool) -> None:
    """Print the plan of a search; trains a few steps to know how long it would take."""
    from api.searches.plan import plan_search

    plan = plan_search(prepared, database)
    answer(plan, as_json, fact_lines(_plan_facts(plan)))


def _plan_facts(plan: dict[str, Any]) -> dict[str, str]:
    allowed = plan["num_allowed"]
    limits = f", {allowed} within the limits" if allowed is not None else ", limits not known yet"
    hours, minutes = divmod(round(plan["training_seconds"] / 60), 60)
    early = f" (fewer with rungs after {', '.join(map(str, plan['rungs']))})"
    return {
        "space": f"{plan['num_states']} architectures{limits}",
        "would train": f"{plan['num_candidates']} candidates in {plan['num_episodes']} episodes, "
        f"each {plan['steps']} steps of {plan['batch_size']} sequences"
        f"{early if plan['rungs'] else ''}; {plan['num_known']} states are in the look-up table",
        "cost": f"{_work(plan['total_tflops'])} for students of middle size, teacher "
        f"{100 * plan['teacher_share']:.0f} % of it",
        "memory": f"{plan['group_gib']:.2f} GiB for a group of {plan['group_size']} of the largest "
        f"students, {plan['teacher_gib']:.2f} GiB for the teacher, per worker",
        "time": f"about {hours} h {minutes:02} min of training on {plan['num_workers']} x "
        f"{plan['device']} ({plan['threads']} threads, {plan['dtype']}), from "
        f"{plan['seconds_per_student']:.1f} s a student timed just now"
        + ("" if plan["latency_known"] else "; and the latency table first"),
    }


def _work(tflops: float) -> str:
    if tflops >= 1:
        return f"{tflops:.0f} TFLOP"
    gflops = 1000 * tflops
    return f"{gflops:.{0 if gflops >= 10 else 2}f} GFLOP"
