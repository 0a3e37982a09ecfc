"""Figures that a page takes from a page of results are the ones that stand there."""

import json
import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
NAMED_OTHERWISE = {
    "`controller` (`learning`)": "controller",
    "`controller` (`paper`)": "controller-paper",
}


def trainings(table: str) -> dict[str, str]:
    """What each strategy takes to the front of a table, no start known."""
    cells = json.loads((DOCS / "results" / "search.json").read_text("utf-8"))["cells"]
    found = next(cell for cell in cells if cell["cell"] == f"{table}-front-blind")
    medians = {row["name"]: row["trainings"][0] for row in found["standings"]}
    return {name: "–" if n is None else f"{n:g}" for name, n in medians.items()}


def test_the_page_of_strategies_has_what_the_study_found() -> None:
    text = (DOCS / "strategies.md").read_text("utf-8")
    part = text.split("## What the presets take, and why")[1]
    head, _, *rows = re.findall(r"^\|(.*)\|$", part, re.MULTILINE)
    tables = re.findall(r"`(.*?)`", head)
    assert len(tables) == 5
    told = {}
    for name, *figures in ([part.strip() for part in row.split("|")] for row in rows):
        names = [NAMED_OTHERWISE[name]] if name in NAMED_OTHERWISE else re.findall(r"`(.*?)`", name)
        told |= dict.fromkeys(names, figures)
    found = [trainings(table) for table in tables]
    assert told == {name: [column[name] for column in found] for name in found[0]}
