"""How distillations for a task look: what preparing finds, how runs go, and their report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kdnas.cli.screens.console import Bar, say, say_each
from kdnas.cli.screens.distillation import is_abandoned
from kdnas.cli.screens.times import age, span
from kdnas.cli.screens.working import WorkScreen
from kdnas.cli.tables.answers import fact_lines
from kdnas.cli.tables.formats import as_text as text_table
from kdnas.cli.tables.task_reports import NONE, as_text, per_cent, short

if TYPE_CHECKING:
    from api.task_distillations.grid import GridProgress
    from api.task_distillations.run import TaskWatchers
    from kdnas.db.lists.job_pages import Row
    from kdnas.records import TaskFacts, TaskRun
    from workers.task.ready import TaskProgress

LISTED = ("name", "status", "task", "student", "methods", "seeds", "runs", "age")
TRIED = ("batch", "rate", "β", "held out", "")


class TaskScreen(WorkScreen):
    """Turns what distillations for a task tell into lines and a bar on stderr."""

    def __init__(self) -> None:
        super().__init__()
        self._phase = ""

    @property
    def watchers(self) -> TaskWatchers:
        """What to give to ``run_stored_task_distillation``."""
        from api.task_distillations.run import TaskWatchers

        return TaskWatchers(
            self._on_progress, self._on_facts, self._on_trials, self._on_progress, self._on_run
        )

    def _on_progress(self, progress: TaskProgress) -> None:
        label = progress.phase.split(":")[0]
        if self._bar is None or label != self._phase:
            self._close_bar()
            self._phase, self._bar = label, Bar(label, progress.total)
        _, _, stage = progress.phase.partition(": ")
        loss = None if progress.loss is None else f"loss {progress.loss:.4f}"
        self._bar.at(progress.done, progress.total, ", ".join(filter(None, (stage, loss))))

    def _on_facts(self, facts: TaskFacts) -> None:
        self._close_bar()
        say_each(facts_lines(facts.to_json()))

    def _on_trials(self, progress: GridProgress) -> None:
        label = f"grid of {progress.method}"
        if self._bar is None or label != self._phase:
            self._close_bar()
            self._phase, self._bar = label, Bar(label, progress.total)
        text = progress.waits
        if progress.last is not None:
            text = f"{progress.last.point}: {_held_out(progress.last.held_out)}"
        self._bar.at(progress.done, progress.total, text)

    def _on_run(self, run: TaskRun) -> None:
        self._close_bar()
        self._phase = ""
        say(run_line(run.to_json()))


def facts_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """What preparing has found out, a line each."""
    teacher, student, settings = facts["teacher"], facts["student"], facts["settings"]
    how = "fine-tuned for it here" if teacher["tuned"] else "as it was given"
    parts = ", ".join(f"{count} {part}" for part, count in facts["examples"].items())
    learned = f"{millions(student['trainable'])} of them learned"
    yield from fact_lines(
        {
            "task": f"{facts['task']} ({facts['kind']}), by {facts['metric']}",
            "examples": parts,
            "teacher": f"{teacher['ref']}, {teacher['layers']} layers, {how}: "
            f"{per_cent(teacher['main'])}, held out {per_cent(teacher['held_out'])}",
            "its layers": " ".join(
                f"{one['layer']}:{per_cent(one['held_out'])}" for one in facts["layers"]
            )
            + "  (pseudo-classifiers, held out)",
            "student": f"{student['name']}, {student['start']}; "
            f"{millions(student['parameters'])} parameters, {learned}",
            "settings": ", ".join(
                f"{key} {value}" for key, value in settings.items() if value is not None
            ),
        },
        width=10,
    )
    yield from (f"warning: {text}" for text in facts["warnings"])


def run_line(run: Mapping[str, Any]) -> str:
    """What a run has come to."""
    called = f"  {run['method']} seed {run['seed']}: "
    if run["error"] is not None:
        return f"{called}failed: {run['error']}"
    chosen = run["chosen"]
    taken = f"stage {chosen['stage']} epoch {chosen['epoch']}" if "stage" in chosen else ""
    rates = ", ".join(
        f"{word} {chosen[key]:g}"
        for word, key in (("batch", "batch_size"), ("rate", "learning_rate"), ("β", "beta"))
        if chosen.get(key) is not None
    )
    scores = f"{per_cent(run['main'])}, held out {per_cent(run['held_out'])}"
    how = f"{run['steps']} steps, {span(run['seconds'])}"
    return f"{called}{scores}  ({'; '.join(filter(None, (taken, rates, how)))})"


def report_lines(report: Mapping[str, Any], output: str | None = None) -> list[str]:
    """Methods over their seeds, published rows beside, and notes.

    Args:
        report: of ``task_report``.
        output: folder that was asked for, for the best students.
    """
    lines = [as_text(report)]
    if report["status"] == "succeeded" and output is not None:
        lines.append(f"best by held-out score in {output}")
    elif report["status"] == "succeeded":
        lines += [
            f"{row['method']}: its student is in {row['student']}"
            for row in report["rows"]
            if row["student"]
        ]
    return lines


def grid_lines(grids: Sequence[Mapping[str, Any]]) -> list[str]:
    """What was tried for each method, and what was taken, a table each.

    Args:
        grids: of a job's detail.
    """
    lines: list[str] = []
    for grid in grids:
        if not grid["trials"]:
            continue
        done, points = len(grid["trials"]), grid["points"]
        count = f"{points} points" if done == points else f"{done} of {points} points so far"
        rows = [
            (
                str(trial["batch_size"]),
                f"{trial['learning_rate']:g}",
                NONE if trial["beta"] is None else f"{trial['beta']:g}",
                _held_out(trial["held_out"]),
                "taken" if trial == grid["chosen"] else "",
            )
            for trial in sorted(grid["trials"], key=_place)
        ]
        lines += [f"grid of {grid['method']}, {count}:", text_table(TRIED, rows, right=TRIED[:4])]
    return lines


def _place(trial: Mapping[str, Any]) -> tuple[float, ...]:
    return trial["batch_size"], trial["learning_rate"], trial["beta"] or 0.0


def _held_out(score: float | None) -> str:
    return "diverged" if score is None else per_cent(score)


def listed(found: Sequence[Row]) -> str:
    """Lay distillations for tasks out, a line each, as they are read for the service's list."""
    now = datetime.now(UTC)
    rows = [
        (
            row["name"],
            row["status"],
            row["task"],
            short(row["student"]),
            ",".join(row["methods"]),
            str(len(row["seeds"])),
            f"{row['done'] or 0}/{row['total']}" if row["total"] else NONE,
            age(now - row["created_at"]),
        )
        for row in found
    ]
    return text_table(LISTED, rows, right=("seeds", "runs", "age"))


def shown(row: Row, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Write one out: what was asked for, what preparing has found out, and its runs."""
    ours = row["owner_kind"] == "cli"
    watch = f"kdnas jobs watch {row['name']}"
    again = (
        f"kdnas task-distill --resume {row['name']}" if ours else f"kdnas jobs resume {row['name']}"
    )
    is_left = ours and is_abandoned(row)
    status = "running, but its process died" if is_left else row["status"]
    going = {
        "queued": again if ours else watch,
        "running": again if is_left else watch,
        "succeeded": f"kdnas task-distillations report {row['name']}",
        "cancelled": None,
    }
    facts = {} if row["facts"] else {"task": row["task"], "student": row["student"]}
    lines = [
        f"{row['name']}  (id {row['id']})",
        *fact_lines(
            {
                "status": f"{status}: {row['error']}" if row["error"] else status,
                **facts,
                "methods": ", ".join(row["methods"]),
                "seeds": ", ".join(map(str, row["seeds"])),
            },
            width=10,
        ),
    ]
    lines += facts_lines(row["facts"]) if row["facts"] else []
    lines += grid_lines(row["grids"])
    lines += ["runs", *map(run_line, runs)] if runs else []
    return [*lines, *fact_lines({"next": going.get(row["status"], again)}, width=10)]


def millions(count: int) -> str:
    """A number of parameters."""
    return f"{count / 1e6:.1f} M"
