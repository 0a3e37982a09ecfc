"""What an early reading of a student foretells, of later readings and of its full distillation.

    kdnas tabular make minilm-rungs --output kdnas/tabular/tables/minilm-rungs.parquet
    python benchmarks/reading_study.py run --results FOLDER
    python benchmarks/reading_study.py report --results FOLDER --output docs/results/readings

Readings come from tables of sweeps. ``run`` distils drawn states of the first table in full, with
the preset ``laptop`` and the table's own teacher, text and objective, from the store of its sweep:
each is a stored distillation of KDNAS_HOME, so that Ctrl-C and the same command again go on where
it was. What is finished is a file of its own, and its weights are removed. Several may run at once
in one KDNAS_HOME: each takes what no other is at. ``report`` writes the page of what is there.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from reading_page import FullRun, draw, page
from study_files import publish

from api.distillations.prepare import prepare_distillation
from api.distillations.run import create_distillation, run_stored_distillation
from api.sweeps.run import drawn_states
from kdnas import ENGINE_VERSION
from kdnas.architecture import Architecture
from kdnas.artefact import write_atomically
from kdnas.cli.screens.console import bar, say
from kdnas.cli.screens.interrupt import Interrupt, interruptible
from kdnas.cli.stored import stored
from kdnas.db.engine import Database
from kdnas.db.records import DistillationRecord
from kdnas.db.repository import distillations
from kdnas.distill.full import FullProgress
from kdnas.errors import ConflictError, NotFoundError, SpecError
from kdnas.records import fingerprint
from kdnas.settings import Settings
from kdnas.specs.distillation import DistillationSpec
from kdnas.specs.load import load_preset, merge
from kdnas.specs.sweep import SweepSpec
from kdnas.tabular.files import named_table, packaged_tables
from kdnas.tabular.table import Table, merged

TABLES: Final = ("minilm-rungs", "minilm")
"""Those of them that come with the program are taken."""
STATES: Final = 24
SEEDS: Final = (1, 2)
"""None is the one of the readings: what a state is worth must not be the luck of its seed."""


def table_of(names: str) -> Table:
    """The tables of these names or files as one."""
    try:
        table = merged(map(named_table, names.split(",")))
    except SpecError as error:
        raise SystemExit(f"--tables: {error}") from None
    if not table.card:
        raise SystemExit(f"--tables {names} has no card that says how it was made; give Parquet")
    return table


def requests(
    table: Table,
    states: int,
    seeds: tuple[int, ...],
    steps: int | None = None,
    threads: int | None = None,
) -> Iterator[DistillationSpec]:
    """The distillations of drawn states, all of one seed before those of the next.

    Args:
        table: with a card; its sweep has read the same states first.
        states: how many.
        seeds: of the distillations.
        steps: of each; None takes the preset's.
        threads: of each; None takes all cores.
    """
    card, sweep = table.card, SweepSpec(states=states)
    context = card["context"]
    preset = load_preset("laptop", "distillation", context["objective"]["name"])
    for seed in seeds:
        for index in drawn_states(sweep, table.space):
            architecture = table.space[index]
            given = {
                "architecture": str(architecture),
                # By their fingerprints, the store of the sweep gives the very same.
                "teacher": {"ref": card["teacher"], "fingerprint": context["teacher"]},
                "corpus": {"source": card["corpus"], "fingerprint": context["corpus"]},
                "objective": context["objective"],
                "student": context["student"],
                "training": {"seed": seed} | ({} if steps is None else {"steps": steps}),
            }
            request = merge(preset, given)
            # What decides the outcome is in the name: the same name is the same distillation.
            mark = fingerprint({"request": request, "engine": ENGINE_VERSION})
            name = f"reading-{str(architecture).replace(',', '-')}-seed{seed}-{mark}"
            here = {"name": name, "training": {"threads": threads}}
            yield DistillationSpec.read(merge(request, here), "reading study")


def file_of(results: Path, spec: DistillationSpec) -> Path:
    """Where the outcome of a distillation is kept."""
    return results / f"{spec.name}.json"


def run(results: Path, wanted: list[DistillationSpec]) -> None:
    """Distil what is missing.

    Raises:
        SystemExit: it was interrupted, or another process is at the rest.
        KdnasError: a distillation failed, or the text or the teacher of the readings is not in the
            store.
    """
    results.mkdir(parents=True, exist_ok=True)
    with (
        stored() as (database, settings),
        interruptible("the distillation", (database, settings), "the same command") as interrupt,
    ):
        for number, spec in enumerate(wanted, 1):
            if file_of(results, spec).exists():
                continue
            say(f"{number} of {len(wanted)}: {spec.architecture}, seed {spec.training.seed}")
            _distil(spec, results, database, settings, interrupt)
            if interrupt():
                raise SystemExit(130)
    left = sum(not file_of(results, spec).exists() for spec in wanted)
    if left:
        raise SystemExit(f"another process is at the {left} that are left")


def _distil(
    spec: DistillationSpec,
    results: Path,
    database: Database,
    settings: Settings,
    interrupt: Interrupt,
) -> None:
    """Distil one to its end or until it is interrupted, unless another process is at it."""
    with bar("distilling", unit="steps") as shown:

        def tell(progress: FullProgress) -> None:
            shown.at(progress.step, progress.total_steps)

        try:
            record = _stored(spec, database, settings)
            if record.status != "succeeded":
                outcome = run_stored_distillation(record.id, database, settings, tell, interrupt)
                record = outcome.record
        except ConflictError as error:
            say(str(error))
            return
    if record.status != "succeeded":
        say(f"paused at step {record.step}; the same command goes on with it")
        return
    with database.read() as session:
        readings = distillations.distillation_readings(session, record.id)
    # Weights first: of a kill in between, the record is left, which tells the losses again.
    shutil.rmtree(str(record.output_path), ignore_errors=True)
    told = {
        "architecture": str(record.architecture),
        "seed": spec.training.seed,
        "relative": record.metrics["relative"],
        "output": record.metrics["output"],
        "best_step": record.metrics["step"],
        "readings": [[one.step, one.losses.relative] for one in readings],
        "about": _about(record),
    }
    write_atomically(file_of(results, spec), (json.dumps(told) + "\n").encode())
    say(f"held-out relative loss {told['relative']:.4f}")


def _stored(spec: DistillationSpec, database: Database, settings: Settings) -> DistillationRecord:
    """The stored distillation of a request, created where there is none yet."""
    with database.read() as session:
        try:
            return distillations.get_distillation(session, str(spec.name))
        except NotFoundError:
            pass
    return create_distillation(prepare_distillation(spec, settings), database)


def _about(record: DistillationRecord) -> dict[str, Any]:
    """What must be the same of all distillations that are compared."""
    training = record.spec["training"]
    told = ("steps", "batch_size", "learning_rate", "warmup_fraction", "held_out", "dtype")
    return {
        **{key: training[key] for key in told},
        "objective": record.spec["objective"],
        "teacher": record.spec["teacher"]["fingerprint"],
        "corpus": record.spec["corpus"]["fingerprint"],
        "engine_version": ENGINE_VERSION,
    }


def full_runs(results: Path) -> list[FullRun]:
    """The distillations that are finished.

    Raises:
        SystemExit: they are not all of the same kind.
    """
    rows = {path: json.loads(path.read_text("utf-8")) for path in sorted(results.glob("*.json"))}
    for path, row in rows.items():
        first, about = next(iter(rows.items()))
        if row["about"] != about["about"]:
            raise SystemExit(
                f"{path} is a distillation of another kind than {first}: {row['about']}, not "
                f"{about['about']}; keep each kind in a folder of its own"
            )
    return [
        FullRun(Architecture.parse(row["architecture"]), row["seed"], row["relative"], row["about"])
        for row in rows.values()
    ]


def main() -> None:
    """Distil, or write the page of what is there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run", "report"])
    usual = ",".join(name for name in TABLES if name in packaged_tables())
    parser.add_argument("--tables", default=usual, help="names or files; the first has the draw")
    parser.add_argument("--results", type=Path, help="folder, a file for each distillation")
    parser.add_argument("--states", type=int, default=STATES, help="to distil")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)), help="of the distillations")
    parser.add_argument("--steps", type=int, help="of a distillation, if not the preset's")
    parser.add_argument("--threads", type=int, help="of this process")
    parser.add_argument("--output", type=Path, help="path without ending for .md, .json and .png")
    asked = parser.parse_args()
    table, seeds = table_of(asked.tables), tuple(map(int, asked.seeds.split(",")))
    if asked.what == "run":
        if asked.results is None:
            parser.error("--results says where the outcomes are kept")
        wanted = list(requests(table, asked.states, seeds, asked.steps, asked.threads))
        run(asked.results, wanted)
        return
    full = [] if asked.results is None else full_runs(asked.results)
    text, numbers = page(table, full, asked.states * len(seeds), asked.output)
    publish(text, numbers, asked.output)
    if asked.output is not None:
        draw(numbers, asked.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
