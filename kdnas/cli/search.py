"""``kdnas search``: run a search, or go on with one."""

from __future__ import annotations

from operator import not_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kdnas.cli.options import common
from kdnas.cli.options.inputs import gather
from kdnas.cli.options.places import At, refuse_with_resume, request_of
from kdnas.cli.screens.console import say, say_each
from kdnas.cli.screens.interrupt import exit_unless_done, interruptible
from kdnas.cli.screens.preparing import prepare_on_screen
from kdnas.cli.screens.search import SearchScreen, say_goal, show_plan, show_result
from kdnas.cli.stored import stored
from kdnas.cli.tables.answers import print_json
from kdnas.errors import RequestError
from kdnas.settings import Settings

if TYPE_CHECKING:
    from kdnas.db.engine import Database
    from kdnas.records import SearchRecord
    from kdnas.specs.search import SearchSpec


def search(
    teacher: common.Teacher = None,
    corpus: common.Corpus = None,
    text_column: common.TextColumn = None,
    language_column: common.LanguageColumn = None,
    max_length: common.MaxLength = None,
    preset: common.Preset = None,
    config: common.Config = None,
    space: common.Space = None,
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
    episodes: Annotated[
        int | None, typer.Option(help="Episodes, M."), At("controller.episodes")
    ] = None,
    candidates: Annotated[
        int | None, typer.Option(help="Candidates of an episode, N."), At("controller.candidates")
    ] = None,
    strategy: common.Strategy = None,
    strategy_option: common.StrategyOption = None,
    steps: Annotated[common.Steps, At("proxy.steps")] = None,
    epochs: Annotated[common.Epochs, At("proxy.epochs")] = None,
    batch_size: Annotated[common.BatchSize, At("proxy.batch_size")] = None,
    learning_rate: Annotated[common.LearningRate, At("proxy.learning_rate")] = None,
    proxy_fraction: common.ProxyFraction = None,
    proxy_seed: Annotated[
        int | None, typer.Option(help="Seed of mini-KD."), At("proxy.seed")
    ] = None,
    dtype: Annotated[common.Dtype, At("proxy.dtype")] = None,
    goal: common.Goal = None,
    max_latency_ms: common.MaxLatencyMs = None,
    max_latency_ratio: common.MaxLatencyRatio = None,
    max_params: common.MaxParams = None,
    reward_loss: Annotated[
        str | None,
        typer.Option(help="L of the reward: relative, output or mean."),
        At("reward.loss"),
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Exponent of the latency, ≤ 0."), At("reward.alpha")
    ] = None,
    latency_price: Annotated[
        float | None,
        typer.Option(help="Share of signal that a doubling of latency must buy; instead of α."),
        At("reward.latency_price"),
    ] = None,
    beta: Annotated[
        float | None, typer.Option(help="Target share of the latency."), At("reward.beta")
    ] = None,
    num_workers: common.NumWorkers = None,
    threads: Annotated[common.Threads, At("backend.threads")] = None,
    group_size: common.GroupSize = None,
    backend: common.Backend = None,
    device: Annotated[common.Device, At("backend.device")] = None,
    ray_address: common.RayAddress = None,
    rungs: Annotated[
        str | None,
        typer.Option(
            help="Read losses after these steps, such as 0,30, and end trainings there that "
            "promise too little."
        ),
        At("proxy.rungs", common.listed),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(help="With rungs: go on with what may be one of so many best."),
        At("proxy.keep"),
    ] = None,
    no_reuse: Annotated[
        bool,
        typer.Option("--no-reuse", help="Train states anew that the look-up table knows."),
        At("proxy.reuse", not_),
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Seed of the controller."), At("seed")] = None,
    name: common.Name = None,
    resume: Annotated[
        str | None, typer.Option(metavar="ID|NAME", help="Go on with a stored search.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be trained, and what it takes.")
    ] = False,
    max_hours: Annotated[
        float | None, typer.Option(help="Pause after this long."), At("limits.max_hours")
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Search for the student worth distilling.

    Everything is stored as it comes. Ctrl-C ends in good order, when the students that are being
    trained have come to their end, and Ctrl-C again at once; `--resume` goes on, with the same
    proposals as if nothing had happened.
    """
    given = locals()
    if resume is not None:
        refuse_with_resume(search, given, {"resume", "max_hours", "as_json"})
        _resume(resume, max_hours, as_json)
    else:
        _start(request_of(search, given), preset, config, dry_run, as_json)


def _start(
    values: dict[str, Any], preset: str | None, config: Path | None, dry_run: bool, as_json: bool
) -> None:
    from api.searches.run import prepare_search
    from kdnas.specs.search import SearchSpec

    inputs = gather("search", values, Settings.from_environment(), preset=preset, config=config)
    spec = SearchSpec.read(inputs.data, "search")
    spec.refuse_contradictions()
    say_each(inputs.lines())
    say_goal(spec)
    if dry_run:
        with stored() as (database, settings):
            show_plan(prepare_on_screen(prepare_search, spec, settings), database, as_json)
    else:
        start(spec, as_json)


def start(spec: SearchSpec, as_json: bool) -> dict[str, Any]:
    """Prepare a search, store it and run it, on the screen; a wrong request leaves none behind.

    Returns:
        The summary that ``--json`` prints.

    Raises:
        KdnasError: it cannot be made, or failed.
        typer.Exit: 130 if it was interrupted.
    """
    from api.searches.run import create_search, discard_if_refused, prepare_search

    with stored() as (database, settings):
        record = create_search(prepare_on_screen(prepare_search, spec, settings), database)
        say(f"search     {record.name}  (id {record.id})")
        try:
            return run_and_report(record, database, settings, as_json)
        except RequestError:
            if discard_if_refused(record.id, database, settings):
                say(f"search     {record.name} is not kept: nothing was trained")
            raise


def _resume(reference: str, max_hours: float | None, as_json: bool) -> None:
    from kdnas.db.repository import searches
    from kdnas.specs.search import LimitsSpec

    LimitsSpec.read({"max_hours": max_hours}, "--max-hours")
    with stored() as (database, settings):
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

    status, interrupted = record.status, False
    way_on = f"kdnas search --resume {record.name}"
    if status != "succeeded":
        again = None if status == "cancelled" else way_on
        goal = record.spec.get("goal", "reward")
        stopping = interruptible("the search", (database, settings), again, trains_students=True)
        with stopping as interrupt, SearchScreen(goal) as screen:
            status = run_stored_search(
                record.id,
                database,
                settings,
                screen.watchers,
                interrupt,
                max_hours,
                interrupt.at_once,
            )
        interrupted = interrupt.requested
    summary = search_summary(record.id, database)
    show_result(summary, to_stderr=as_json)
    if status == "paused":
        say(f"paused; go on with: kdnas search --resume {summary['name']}")
    if as_json:
        print_json(summary)
    if interrupted or not _is_out_of_hours(record.id, database):  # which is as asked
        exit_unless_done(status)
    return summary


def _is_out_of_hours(search_id: str, database: Database) -> bool:
    """Whether it rests since its time is over."""
    from kdnas.db.repository import searches
    from kdnas.search.loop import HOURS_OVER

    record = database.ask(lambda session: searches.get_search(session, search_id))
    return record.status == "paused" and (record.error or "").startswith(HOURS_OVER)
