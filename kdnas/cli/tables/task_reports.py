"""The report of distillations for one task: tables for people, documents and other programs."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kdnas.cli.tables.formats import as_markdown as markdown_table
from kdnas.cli.tables.formats import as_text as text_table
from kdnas.spreadsheet import CsvWriter

NONE: Final = "–"
SCORES: Final = (
    *("method", "seeds", "score", "95 % interval", "held out", "of teacher"),
    *("difference", "p"),
)
FIGURES: Final = (
    *("planned", "num_succeeded", "num_failed", "mean", "deviation", "low", "high", "over"),
    *("held_out", "retained", "best_seed"),
)
COMPARED: Final = {
    "difference": "difference",
    "difference_low": "low",
    "difference_high": "high",
    "p_value": "p_value",
    "examples": "examples",
}
"""Column → entry of a comparison with ``against``."""
BESIDE: Final = "beside what Wu et al. (2021) print in their Tables 2 to 6:"

Report = Mapping[str, Any]
"""Of ``task_report``."""

Table = tuple[list[str], list[list[str]]]
"""Header and rows."""


def per_cent(score: float | None, digits: int = 1) -> str:
    """A score as papers print it."""
    return NONE if score is None else f"{100 * score:.{digits}f}"


def short(name: str) -> str:
    """The name of a folder; anything else whole."""
    return Path(name).name if Path(name).is_absolute() else name


def as_text(report: Report) -> str:
    """Methods over their seeds, published rows beside, and notes."""
    return "\n".join(_parts(report, _headline(report), text_table, "note: "))


def as_markdown(report: Report) -> str:
    """Write a report for a document."""
    title = f"## {report['name']}\n\n{_headline(report)}"
    return "\n\n".join(part for part in _parts(report, title, markdown_table, "- ") if part)


def as_csv(report: Report) -> str:
    """Write a report for other programs: a line a method, scores as fractions."""
    stream = io.StringIO()
    writer = CsvWriter(stream)
    known = ("task", "metric", "student", "teacher", "teacher_score")
    writer.writerow([*known, "method", *FIGURES, "against", *COMPARED])
    for row in report["rows"]:
        compared = row["against"] or {}
        writer.writerow(
            [
                *(report[name] for name in known),
                row["method"],
                *(row[name] for name in FIGURES),
                report["against"] if compared else None,
                *(compared.get(name) for name in COMPARED.values()),
            ]
        )
    return stream.getvalue().rstrip("\n")


def method_table(report: Report) -> Table:
    """Return a row for each method, in per cent."""
    other = report["against"]
    cut = len(SCORES) if other else SCORES.index("difference")
    header = [name if name != "difference" else f"to {other}" for name in SCORES]
    return header[:cut], [_method_cells(row)[:cut] for row in report["rows"]]


def published_table(report: Report) -> Table:
    """Return published scores in the columns of their tables, ours in the first one."""
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
    return ["method", "here", *heads], [
        [name, per_cent(here.get(name)), *(per_cent(score(name, column)) for column in columns)]
        for name in names
    ]


def _headline(report: Report) -> str:
    return (
        f"{report['task']}: {report['student']} of {short(report['teacher'])}, in per cent"
        + (f" of {report['metric']}" if report["metric"] else "")
        + ", mean ± deviation over seeds"
    )


def _parts(
    report: Report,
    title: str,
    table: Callable[[Sequence[str], Sequence[Sequence[str]], Sequence[str]], str],
    mark: str,
) -> Iterator[str]:
    header, rows = method_table(report)
    yield title
    yield table(header, rows, header[1:])
    if report["teacher_score"] is not None:
        held_out = per_cent(report["teacher_held_out"])
        yield f"teacher: {per_cent(report['teacher_score'])}, held out {held_out}"
    if report["published"]:
        header, rows = published_table(report)
        yield from ("", BESIDE, table(header, rows, header[1:]))
    if report["notes"]:
        yield "\n".join(f"{mark}{note}" for note in report["notes"])


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
