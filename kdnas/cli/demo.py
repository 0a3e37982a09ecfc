"""``kdnas demo``: a real search and a real distillation, shorter than a coffee."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
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
    from kdnas.cli.screens.console import say
    from kdnas.cli.screens.plot import plot_search
    from kdnas.db.engine import parse_url, shown
    from kdnas.errors import SpecError
    from kdnas.settings import Settings
    from kdnas.specs.load import load_yaml, merge

    began = time.monotonic()
    settings = Settings.from_environment()
    say("demo       MiniLM teaches students of its own proportions on documentation strings\n")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecError(
            f"output folder {output} cannot be made ({error.strerror}); name another with --output"
        ) from None
    changes = merge(SHORTER, load_yaml(config) if config else {})
    summary = _search(changes, settings)
    (output / "search.json").write_text(json.dumps(summary, indent=1) + "\n", "utf-8")
    plot_search(summary, output / "loss_latency.png")
    winner = summary["best"][0]["architecture"]
    say(f"\nthe winner is {winner}; distilling it on the whole corpus\n")
    inputs = {key: value for key, value in changes.items() if key in {"teacher", "corpus"}}
    student = _distil(winner, inputs, distill_steps, _fresh(output), settings)
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    say(f"\ndone in {minutes} min {seconds:02} s")
    for name, path in {
        "plot": output / "loss_latency.png",
        "numbers": output / "search.json",
        "student": student,
    }.items():
        say(f"{name:<10} {path.absolute()}")
    say(f"database   {shown(parse_url(settings.database_url))}")
    say(f"\nnext: kdnas searches show {summary['name']}")


def _search(changes: dict[str, Any], settings: Settings) -> dict[str, Any]:
    from api.searches.run import create_search, prepare_search
    from kdnas.cli.corpus import corpus_bar
    from kdnas.cli.screens.console import say
    from kdnas.cli.search import run_and_report
    from kdnas.db.migrate import open_database
    from kdnas.specs.load import load_preset, merge
    from kdnas.specs.search import SearchSpec

    spec = SearchSpec.read(merge(load_preset("laptop", "search"), changes), "demo")
    with open_database(settings) as database:
        with corpus_bar() as on_corpus:
            prepared = prepare_search(spec, settings, on_corpus)
        record = create_search(prepared, database)
        say(f"search     {record.name}  (id {record.id})")
        return run_and_report(record, database, settings, as_json=False)


def _distil(
    architecture: str, inputs: dict[str, Any], steps: int, output: Path, settings: Settings
) -> Path:
    from api.distillations.prepare import prepare_distillation
    from api.distillations.run import create_distillation
    from kdnas.cli.full_distill import run_and_report
    from kdnas.db.migrate import open_database
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
    with open_database(settings) as database:
        record = create_distillation(prepare_distillation(spec, settings), database)
        return run_and_report(record, database, settings, as_json=False)


def _fresh(output: Path) -> Path:
    """Return a folder for the student that is not there yet: the demo may be run again."""
    number = 1
    while (output / f"student-{number}").exists():
        number += 1
    return output / f"student-{number}"
