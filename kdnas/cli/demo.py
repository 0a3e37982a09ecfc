"""``kdnas demo``: a real search and a real distillation, shorter than a coffee."""

from __future__ import annotations

import json
import time
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from kdnas.cli import full_distill, search
from kdnas.cli.options.outputs import output_folder
from kdnas.cli.screens.console import say, say_each
from kdnas.cli.screens.plot import plot_search
from kdnas.cli.tables.answers import fact_lines
from kdnas.settings import Settings

SHORTER: dict[str, Any] = {
    "corpus": {"max_samples": 20_000},
    "proxy": {"steps": 30},
    "latency": {"budget_seconds": 25},
    # The front has no winner, and the demo is to show one.
    "goal": "limit",
    "limits": {"max_latency_ratio": 0.6},
}
"""What the demo asks less of than the preset: it is to be over in five minutes on two cores."""


def demo(
    output: Annotated[
        Path, typer.Option(help="Folder of the plot, the numbers and the student.")
    ] = Path("demo-output"),
    distill_steps: Annotated[
        int, typer.Option(min=1, help="Steps of the winner's full distillation.")
    ] = 150,
    config: Annotated[
        Path | None,
        typer.Option(help="YAML file with a spec to lay over the preset laptop.", dir_okay=False),
    ] = None,
) -> None:
    """Search and distil for real, in minutes.

    MiniLM teaches students of its own proportions on documentation strings, and the winner is
    distilled.

    Everything is real and on this machine: teacher, text, latency table, Ray workers, database.
    """
    began = time.monotonic()
    say("demo       MiniLM teaches students of its own proportions on documentation strings\n")
    with output_folder(output):
        _run(output, config, distill_steps, began)


def _run(output: Path, config: Path | None, distill_steps: int, began: float) -> None:
    from kdnas.db.engine import parse_url, shown
    from kdnas.specs.distillation import DistillationSpec
    from kdnas.specs.load import load_preset, load_yaml, merge
    from kdnas.specs.search import SearchSpec

    changes = merge(SHORTER, load_yaml(config) if config else {})
    asked = merge(load_preset("laptop", "search"), changes)
    spec = SearchSpec.read(asked, "demo")
    spec.refuse_contradictions()
    summary = search.start(spec, as_json=False)
    (output / "search.json").write_text(json.dumps(summary, indent=1) + "\n", "utf-8")
    plot_search(summary, output / "loss_latency.png")
    winner = summary["best"][0]["architecture"]
    say(f"\nthe winner is {winner}; distilling it on the whole corpus\n")
    asked = merge(
        load_preset("laptop", "distillation"),
        {key: value for key, value in changes.items() if key in {"teacher", "corpus"}},
        # So short a training has its best rate below the preset's, which is for a thousand steps.
        {"training": {"steps": distill_steps, "learning_rate": 1e-3}},
        {"architecture": winner, "output": str(_fresh(output))},
    )
    student = full_distill.start(DistillationSpec.read(asked, "demo"), as_json=False)
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    say(f"\ndone in {minutes} min {seconds:02} s")
    results = {
        "plot": (output / "loss_latency.png").absolute(),
        "numbers": (output / "search.json").absolute(),
        "student": student.absolute(),
        "database": shown(parse_url(Settings.from_environment().database_url)),
    }
    say_each(fact_lines(results, 10))
    say(f"\nnext: kdnas searches show {summary['name']}")


def _fresh(output: Path) -> Path:
    """Return a folder for the student that is not there yet: the demo may be run again."""
    folders = (output / f"student-{number}" for number in count(1))
    return next(folder for folder in folders if not folder.exists())
