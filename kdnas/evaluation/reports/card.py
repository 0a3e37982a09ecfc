"""The table of scores in a student's model card: written in place, again and again."""

from __future__ import annotations

import fcntl
import io
import os
import re
from dataclasses import replace
from pathlib import Path

from kdnas.distill.export import RUN_FILE
from kdnas.evaluation.reports.formats import (
    bootstrap_lines,
    figures_line,
    figures_table,
    markdown_table,
    score_table,
)
from kdnas.evaluation.reports.report import Report
from kdnas.json_files import read_object
from kdnas.reach import ANYWHERE, Reach, new_file

CARD_FILE = "README.md"
USE_HEADING = "\n## Use\n"
"""Scores that are new to a card go before it."""


def is_student(folder: Path, reach: Reach = ANYWHERE) -> bool:
    """Whether a folder is a student that kdnas has written, whose card it may add to.

    Raises:
        RequestError: it is out of reach.
    """
    about = read_object(folder / RUN_FILE, reach) or {}
    return "distillation_id" in about and (folder / CARD_FILE).is_file()


def write_scores(folder: Path, report: Report, reach: Reach = ANYWHERE) -> None:
    """Put the scores over a suite into a student's model card, in the place of older ones.

    They stand between two comments of HTML; whatever else is in the card stays as it is.

    Args:
        folder: of a student: see :func:`is_student`.
        report: whose first row is the student.
        reach: how the folder is opened.

    Raises:
        RequestError: folder or card is out of reach.
        OSError: the card cannot be read or written.
    """
    with reach.folder(folder) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # two suites may end at once
        with reach.open(folder / CARD_FILE) as stream, io.TextIOWrapper(stream, "utf-8") as text:
            changed = with_scores(text.read(), report)
        draft = f".{CARD_FILE}.draft"
        with new_file(draft, descriptor) as written:
            written.write(changed.encode())
        os.replace(draft, CARD_FILE, src_dir_fd=descriptor, dst_dir_fd=descriptor)


def with_scores(card: str, report: Report) -> str:
    """Return a card with the scores over a suite."""
    start, end = (f"<!-- kdnas: {part} of scores over {report.suite} -->" for part in _ENDS)
    section = f"{start}\n{_section(report)}\n{end}"
    # The last start before an end: whatever stands after one without an end is the user's.
    between = re.compile(
        f"{re.escape(start)}(?:(?!{re.escape(start)}).)*?{re.escape(end)}", re.DOTALL
    )
    if between.search(card):
        return between.sub(lambda _: section, card, count=1)
    head, heading, tail = card.partition(USE_HEADING)
    return f"{head.rstrip()}\n\n{section}\n{heading}{tail}"


_ENDS = ("begin", "end")


def _section(report: Report) -> str:
    """Write the measured rows; names that are paths of this machine become shorter."""
    names = {row.model: Path(row.model).name for row in report.rows if row.origin == "measured"}
    names[report.rows[0].model] = "this model"
    rows = [replace(row, model=names[row.model]) for row in report.rows if row.origin == "measured"]
    against = [
        replace(a, model=names[a.model], other=names.get(a.other, a.other)) for a in report.against
    ]
    shown = replace(report, rows=tuple(rows), against=tuple(against))
    parts = [
        f"## Scores over {report.suite}",
        "In per cent, mean ± deviation over seeds.",
        markdown_table(*score_table(shown)),
        *bootstrap_lines(shown),
    ]
    header, cells = figures_table(shown)
    if cells:
        parts.append(markdown_table(header, cells))
        parts += filter(None, [figures_line(shown)])
    parts += [f"- {note}" for note in report.notes]
    return "\n\n".join(parts)
