"""``kdnas search``: run a search, or go on with one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kdnas.cli.options import common

if TYPE_CHECKING:
    from kdnas.db.engine import Database
    from kdnas.records import SearchRecord
    from kdnas.settings import Settings


def search(
    teacher: common.Teacher = None,
    corpus: common.Corpus = None,
    text_column: common.TextColumn = None,
    language_column: common.LanguageColumn = None,
    max_length: common.MaxLength = None,
    preset: common.Preset = None,
    config: common.Config = None,
    space: Annotated[
        str | None, typer.Option(help="paper, or scaled to the teacher; own axes by --config.")
    ] = None,
    objective: common.Objective = None,
    mapping: common.Mapping = None,
    last_weight: common.LastWeight = None,
    relations: common.Relations = None,
    relation_heads: common.RelationHeads = None,
    teacher_layer: common.TeacherLayer = None,
    orthogonal: common.Orthogonal = False,
    temperature: common.Temperature = None,
    fit_lm_head: common.FitLMHead = None,
    init: common.Init = None,
    episodes: Annotated[int | None, typer.Option(help="Episodes, M.")] = None,
    candidates: Annotated[int | None, typer.Option(help="Candidates of an episode, N.")] = None,
    strategy: Annotated[
        str | None, typer.Option(help="controller, random or package.module:Class.")
    ] = None,
    steps: common.Steps = None,
    epochs: common.Epochs = None,
    batch_size: common.BatchSize = None,
    learning_rate: common.LearningRate = None,
    proxy_fraction: Annotated[
        float | None, typer.Option(help="Share of the corpus in the proxy set.")
    ] = None,
    proxy_seed: Annotated[int | None, typer.Option(help="Seed of mini-KD.")] = None,
    dtype: common.Dtype = None,
    max_latency_ms: Annotated[
        float | None, typer.Option(help="Slower students are never proposed.")
    ] = None,
    max_latency_ratio: Annotated[
        float | None, typer.Option(help="The same as a share of the teacher's latency.")
    ] = None,
    max_params: Annotated[
        float | None, typer.Option(help="Larger students are never proposed (millions).")
    ] = None,
    reward_loss: Annotated[
        str | None, typer.Option(help="L of the reward: relative, output or mean.")
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="Exponent of the latency, ≤ 0.")] = None,
    latency_price: Annotated[
        float | None,
        typer.Option(help="Share of signal that a doubling of latency must buy; instead of α."),
    ] = None,
    beta: Annotated[float | None, typer.Option(help="Target share of the latency.")] = None,
    num_workers: Annotated[int | None, typer.Option(help="Workers at the same time.")] = None,
    threads: common.Threads = None,
    group_size: Annotated[
        int | None, typer.Option(help="Students on one teacher pass.  [default: fits memory]")
    ] = None,
    backend: Annotated[str | None, typer.Option(help="ray, or local (this process).")] = None,
    device: common.Device = None,
    ray_address: Annotated[str | None, typer.Option(help="Of a running Ray cluster.")] = None,
    no_reuse: Annotated[
        bool, typer.Option("--no-reuse", help="Train states anew that the look-up table knows.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Seed of the controller.")] = None,
    name: common.Name = None,
    resume: Annotated[
        str | None, typer.Option(metavar="ID|NAME", help="Go on with a stored search.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be trained, and what it takes.")
    ] = False,
    max_hours: Annotated[float | None, typer.Option(help="Pause after this long.")] = None,
    as_json: common.Json = False,
) -> None:
    """Search for the student worth distilling.

    Everything is stored as it comes. Ctrl-C ends in good order; `--resume` goes on, with the same
    proposals as if nothing had happened.
    """
    from kdnas.cli.options.inputs import nested, refuse_with_resume
    from kdnas.settings import Settings

    values: dict[str, Any] = {
        "name": name,
        "seed": seed,
        "teacher.ref": teacher,
        "corpus.source": corpus,
        "corpus.text_column": text_column,
        "corpus.language_column": language_column,
        "corpus.max_length": max_length,
        "space.kind": space,
        **common.objective_values(
            objective,
            mapping,
            last_weight,
            relations,
            relation_heads,
            teacher_layer,
            orthogonal,
            temperature,
            fit_lm_head,
        ),
        "student.init": init,
        "proxy.steps": steps,
        "proxy.epochs": epochs,
        "proxy.batch_size": batch_size,
        "proxy.learning_rate": learning_rate,
        "proxy.fraction": proxy_fraction,
        "proxy.seed": proxy_seed,
        "proxy.dtype": dtype,
        "proxy.reuse": False if no_reuse else None,
        "reward.loss": reward_loss,
        "reward.alpha": alpha,
        "reward.latency_price": latency_price,
        "reward.beta": beta,
        "limits.max_latency_ms": max_latency_ms,
        "limits.max_latency_ratio": max_latency_ratio,
        "limits.max_params_millions": max_params,
        "limits.max_hours": max_hours,
        "controller.strategy": strategy,
        "controller.episodes": episodes,
        "controller.candidates": candidates,
        "backend.name": backend,
        "backend.num_workers": num_workers,
        "backend.threads": threads,
        "backend.group_size": group_size,
        "backend.device": device,
        "backend.address": ray_address,
    }
    settings = Settings.from_environment()
    if resume is not None:
        del values["limits.max_hours"]
        others = {"--preset": preset, "--config": config, "--dry-run": dry_run or None}
        refuse_with_resume({**values, **others})
        _resume(resume, max_hours, settings, as_json)
        return
    _start(nested(values), preset, config, settings, dry_run, as_json)


def _start(
    values: dict[str, Any],
    preset: str | None,
    config: Path | None,
    settings: Settings,
    dry_run: bool,
    as_json: bool,
) -> None:
    from api.searches.run import create_search, prepare_search
    from kdnas.cli.corpus import corpus_bar
    from kdnas.cli.options.inputs import gather
    from kdnas.cli.options.training_length import one_length
    from kdnas.cli.screens.console import say
    from kdnas.cli.screens.plan import show_plan
    from kdnas.cli.screens.preparing import chosen_layer_lines, preparing_bar
    from kdnas.db.migrate import open_database
    from kdnas.specs.search import SearchSpec

    inputs = gather("search", values, settings, preset=preset, config=config)
    spec = SearchSpec.read(one_length(inputs.data, values, "proxy"), "search")
    for line in inputs.lines():
        say(line)
    with open_database(settings) as database:
        with corpus_bar() as on_corpus, preparing_bar() as on_preparing:
            prepared = prepare_search(spec, settings, on_corpus, on_preparing)
        for line in chosen_layer_lines(prepared.spec.objective):
            say(line)
        for warning in prepared.warnings:
            say(f"warning: {warning}")
        if dry_run:
            show_plan(prepared, database, as_json)
            return
        record = create_search(prepared, database)
        say(f"search     {record.name}  (id {record.id})")
        run_and_report(record, database, settings, as_json)


def _resume(reference: str, max_hours: float | None, settings: Settings, as_json: bool) -> None:
    from kdnas.cli.screens.console import say
    from kdnas.db.migrate import open_database
    from kdnas.db.repository import searches
    from kdnas.specs.search import LimitsSpec

    LimitsSpec.read({"max_hours": max_hours}, "--max-hours")
    with open_database(settings) as database:
        with database.read() as session:
            record = searches.get_search(session, reference)
        say(f"search     {record.name}  (id {record.id}, {record.status}), spec as stored")
        run_and_report(record, database, settings, as_json, max_hours)


def run_and_report(
    record: SearchRecord,
    database: Database,
    settings: Settings,
    as_json: bool,
    max_hours: float | None = None,
) -> dict[str, Any]:
    """Run a stored search on the screen and print its result; a finished one is only printed.

    Returns:
        The summary that ``--json`` prints.

    Raises:
        KdnasError: the search failed.
        typer.Exit: 130 if it was interrupted.
    """
    from api.searches.reading import search_summary
    from api.searches.run import run_stored_search
    from kdnas.cli.screens.console import say
    from kdnas.cli.screens.interrupt import interruptible
    from kdnas.cli.screens.search import SearchScreen, show_result
    from kdnas.errors import WorkError

    status, interrupted = record.status, False
    if status != "succeeded":
        screen = SearchScreen()
        try:
            with interruptible("the search") as interrupt, screen:
                status = run_stored_search(
                    record.id, database, settings, screen.watchers, interrupt, max_hours
                )
            interrupted = interrupt.requested
        except (WorkError, KeyboardInterrupt):
            if status != "cancelled":
                say(f"stopped; go on with: kdnas search --resume {record.name}")
            raise
    summary = search_summary(record.id, database)
    show_result(summary, to_stderr=as_json)
    if status == "paused":
        say(f"paused; go on with: kdnas search --resume {record.name}")
    if as_json:
        typer.echo(json.dumps(summary))
    if interrupted and status != "succeeded":
        raise typer.Exit(130)
    return summary
