"""How distillations for a task look: what preparing finds, how runs go, and their report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdnas.cli.screens.console import Bar, say, say_each
from kdnas.cli.screens.times import age, span
from kdnas.cli.screens.working import WorkScreen
from kdnas.cli.tables.answers import fact_lines
from kdnas.cli.tables.formats import as_text

if TYPE_CHECKING:
    from api.task_distillations.grid import GridProgress
    from api.task_distillations.run import TaskWatchers
    from kdnas.db.lists.job_pages import Row
    from kdnas.records import TaskFacts, TaskRun
    from workers.task.ready import TaskProgress

NONE = "–"
LISTED = ("name", "status", "task", "student", "methods", "seeds", "runs", "age")
SCORES = ("method", "seeds", "score", "95 % interval", "held out", "of teacher", "difference", "p")
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
        text = "another process works on it" if progress.waits else ""
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
            "settings": ", ".join(f"{key} {value}" for key, value in settings.items()),
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
    other = report["against"]
    header = [name if name != "difference" else f"to {other}" for name in SCORES]
    cut = len(SCORES) if other else SCORES.index("difference")
    rows = [_method_cells(row)[:cut] for row in report["rows"]]
    lines = [
        f"{report['task']}: {report['student']} of {_short(report['teacher'])}, in per cent"
        + (f" of {report['metric']}" if report["metric"] else "")
        + ", mean ± deviation over seeds",
        as_text(header[:cut], rows, right=header[1:cut]),
    ]
    if report["teacher_score"] is not None:
        held_out = per_cent(report["teacher_held_out"])
        lines.append(f"teacher: {per_cent(report['teacher_score'])}, held out {held_out}")
    if report["published"]:
        lines += ["", "beside what Wu et al. (2021) print in their Tables 2 to 6:"]
        lines.append(_published(report))
    lines += [f"note: {note}" for note in report["notes"]]
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
        lines += [f"grid of {grid['method']}, {count}:", as_text(TRIED, rows, right=TRIED[:4])]
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
            _short(row["student"]),
            ",".join(row["methods"]),
            str(len(row["seeds"])),
            f"{row['done'] or 0}/{row['total']}" if row["total"] else NONE,
            age(now - row["created_at"]),
        )
        for row in found
    ]
    return as_text(LISTED, rows, right=("seeds", "runs", "age"))


def shown(row: Row, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Write one out: what was asked for, what preparing has found out, and its runs."""
    going = {
        "running": f"kdnas jobs watch {row['name']}",
        "succeeded": f"kdnas task-distillations report {row['name']}",
        "cancelled": None,
    }
    again = (
        f"kdnas task-distill --resume {row['name']}"
        if row["owner_kind"] == "cli"
        else f"kdnas jobs resume {row['name']}"
    )
    facts = {} if row["facts"] else {"task": row["task"], "student": row["student"]}
    lines = [
        f"{row['name']}  (id {row['id']})",
        *fact_lines(
            {
                "status": f"{row['status']}: {row['error']}" if row["error"] else row["status"],
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


def per_cent(score: float | None, digits: int = 1) -> str:
    """A score as papers print it."""
    return NONE if score is None else f"{100 * score:.{digits}f}"


def millions(count: int) -> str:
    """A number of parameters."""
    return f"{count / 1e6:.1f} M"


def _method_cells(row: Mapping[str, Any]) -> list[str]:
    spread = "" if row["deviation"] is None else f" ± {per_cent(row['deviation'])}"
    ends = NONE if row["low"] is None else f"{per_cent(row['low'])} … {per_cent(row['high'])}"
    done = f"{row['num_succeeded']}/{row['planned']}"
    cells = [row["method"], done, f"{per_cent(row['mean'])}{spread}", ends]
    cells += [per_cent(row["held_out"]), per_cent(row["retained"])]
    against = row["against"]
    if against is None:
        return [*cells, NONE, NONE]
    low, high = (f"{100 * against[end]:+.1f}" for end in ("low", "high"))
    p_value = "<0.001" if against["p_value"] < 0.001 else f"{against['p_value']:.3f}"
    return [*cells, f"{100 * against['difference']:+.1f} ({low} … {high})", p_value]


def _published(report: Mapping[str, Any]) -> str:
    """Published scores in the columns of their tables, ours in the first one."""
    rows = report["published"]
    columns = list(dict.fromkeys((r["table"], r["split"], r["model"]) for r in rows if r["ours"]))
    here = {"teacher": report["teacher_score"]}
    here |= {row["method"]: row["mean"] for row in report["rows"]}
    names = dict.fromkeys([*here, *(row["ours"] for row in rows if row["ours"])])
    known = {(r["table"], r["split"], r["model"], r["ours"]): r["score"] for r in rows}
    teachers = {row["table"]: row["score"] for row in rows if row["ours"] is None}

    def score(name: str, column: tuple[str, str, str]) -> float | None:
        if name == "teacher":
            return teachers.get(column[0])
        return known.get((*column, name))

    heads = [f"{table}: {model}, {split}" for table, split, model in columns]
    cells = [
        (name, per_cent(here.get(name)), *(per_cent(score(name, column)) for column in columns))
        for name in names
    ]
    return as_text(("method", "here", *heads), cells, right=("here", *heads))


def _short(name: str) -> str:
    """The name of a folder; anything else whole."""
    return Path(name).name if Path(name).is_absolute() else name
