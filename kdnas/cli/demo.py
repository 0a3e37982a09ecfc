"""``kdnas demo``: a real search and a real distillation, shorter than a coffee."""

from __future__ import annotations

import json
import time
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from kdnas.cli import full_distill, search
from kdnas.cli.options.outputs import make_folder
from kdnas.cli.screens.console import say, say_each
from kdnas.cli.screens.plot import plot_search
from kdnas.cli.screens.preparing import prepare_on_screen
from kdnas.cli.stored import stored
from kdnas.cli.tables.answers import fact_lines
from kdnas.settings import Settings

SHORTER: dict[str, Any] = {
    "corpus": {"max_samples": 20_000},
    "proxy": {"steps": 30},
    "latency": {"budget_seconds": 25},
    # What is as slow as its teacher starts nearly as good as it, wins, and is no student to show.
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
    from kdnas.db.engine import parse_url, shown
    from kdnas.specs.load import load_yaml, merge

    began = time.monotonic()
    say("demo       MiniLM teaches students of its own proportions on documentation strings\n")
    make_folder(output)
    changes = merge(SHORTER, load_yaml(config) if config else {})
    summary = _search(changes)
    (output / "search.json").write_text(json.dumps(summary, indent=1) + "\n", "utf-8")
    plot_search(summary, output / "loss_latency.png")
    winner = summary["best"][0]["architecture"]
    say(f"\nthe winner is {winner}; distilling it on the whole corpus\n")
    inputs = {key: value for key, value in changes.items() if key in {"teacher", "corpus"}}
    student = _distil(winner, inputs, distill_steps, _fresh(output))
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


def _search(changes: dict[str, Any]) -> dict[str, Any]:
    from api.searches.run import create_search, prepare_search
    from kdnas.specs.load import load_preset, merge
    from kdnas.specs.search import SearchSpec

    spec = SearchSpec.read(merge(load_preset("laptop", "search"), changes), "demo")
    with stored() as (database, settings):
        prepared = prepare_on_screen(prepare_search, spec, settings)
        record = create_search(prepared, database)
        say(f"search     {record.name}  (id {record.id})")
        return search.run_and_report(record, database, settings, as_json=False)


def _distil(architecture: str, inputs: dict[str, Any], steps: int, output: Path) -> Path:
    from api.distillations.prepare import prepare_distillation
    from api.distillations.run import create_distillation
    from kdnas.specs.distillation import DistillationSpec
    from kdnas.specs.load import load_preset, merge

    request = merge(
        load_preset("laptop", "distillation"),
        inputs,
        # So short a training has its best rate below the preset's, which is for a thousand steps.
        {"architecture": architecture, "training": {"steps": steps, "learning_rate": 1e-3}},
        {"output": str(output)},
    )
    spec = DistillationSpec.read(request, "demo")
    with stored() as (database, settings):
        record = create_distillation(prepare_distillation(spec, settings), database)
        return full_distill.run_and_report(record, database, settings, as_json=False)


def _fresh(output: Path) -> Path:
    """Return a folder for the student that is not there yet: the demo may be run again."""
    folders = (output / f"student-{number}" for number in count(1))
    return next(folder for folder in folders if not folder.exists())
