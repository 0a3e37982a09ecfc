"""Comparisons of strategies on tables, as the command line asks for them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from controller.strategies import build_strategy
from kdnas.artefact import write_atomically
from kdnas.cpu import available_cores
from kdnas.errors import OutputError, SpecError, StoreError, unknown_name
from kdnas.search_space import num_states
from kdnas.specs.search import ControllerSpec, SearchSpec
from kdnas.specs.strategies import STRATEGIES, strategy_names
from kdnas.tabular.comparison import LATENCY_RATIOS, Question, curves, run_replays, standings
from kdnas.tabular.files import ENDINGS, named_table, packaged_tables
from kdnas.tabular.judge import SOLVED_VOLUME
from kdnas.tabular.replay import Replay
from kdnas.tabular.surface import SYNTHETIC, Surface, surface_of, synthetic

WRITE_SECONDS = 5.0
"""So often what has been found is written while a comparison runs."""
REFERENCE = "gp"
"""Whom the others are tested against unless somebody is named: most presets take it."""
VARIANTS: Final = {
    f"{name}-{value}": {"name": name, key: value}
    for name, kind in STRATEGIES.items()
    for key, field in kind.model_fields.items()
    if key != "name" and get_origin(field.annotation) is Literal
    for value in get_args(field.annotation)
}
"""Strategies with a value of an option that is one of some words, such as ``gp-thompson``."""


def compare_strategies(
    table: str,
    *,
    names: Sequence[str] | None,
    seeds: int,
    budgets: Sequence[str],
    candidates: int,
    goal: str,
    latency_price: float | None,
    max_latency_ratio: float | None,
    rungs: Sequence[str],
    keep: int | None,
    schedule: int | None,
    starts: bool,
    reference: str | None,
    workers: int | None,
    output: Path | None,
    max_latency_ms: float | None = None,
    max_params_millions: float | None = None,
    on_progress: Callable[[int, int, str], None] = lambda *_: None,
) -> dict[str, Any]:
    """Compare strategies on a table or a formula.

    Args:
        table: file of a table, or name of one of ours or of a synthetic surface.
        names: of strategies; None takes all that the surface allows.
        seeds: searches of each.
        budgets: trainings after which they are compared.
        candidates: of an episode.
        goal: of the searches.
        latency_price: of the reward; None takes the default.
        max_latency_ratio: of the limits.
        rungs: steps after which trainings that promise too little end.
        keep: with rungs: how many of the best are kept.
        schedule: of the table's trainings that count.
        starts: whether strategies know the loss with which every state starts.
        reference: whom the others are tested against; None takes :data:`REFERENCE`
            where it is compared, else the first.
        workers: processes; None takes one a core.
        output: file to write; replays that it holds are not run again.
        max_latency_ms: of the limits.
        max_params_millions: of the limits.
        on_progress: is told how many searches are done, of how many, and of which strategy.

    Raises:
        SpecError: anything in the request that cannot be done.
        OutputError: the file cannot be written.
        StoreError: it cannot be written any more.
    """
    if keep is not None and not rungs:
        raise SpecError(
            f"--keep is {keep}, and without --rungs no training ends early; add --rungs, or leave "
            "--keep out"
        )
    asked = {
        "goal": goal,
        "reward": {} if latency_price is None else {"latency_price": latency_price},
        "limits": {
            "max_latency_ms": max_latency_ms,
            "max_latency_ratio": max_latency_ratio,
            "max_params_millions": max_params_millions,
        },
        "proxy": {
            **({"rungs": _whole_numbers("--rungs", rungs)} if rungs else {}),
            **({} if keep is None else {"keep": keep}),
        },
    }
    spec = SearchSpec.read(asked, "the question")
    surface = named_surface(table, schedule)
    if not starts:
        surface = replace(surface, starts={})
    question = Question(
        surface,
        spec,
        seeds,
        _whole_numbers("--budgets", budgets),
        ControllerSpec.read({"candidates": candidates}, "--candidates").candidates,
    )
    specs = _specs(names, surface)
    if workers is not None and workers < 1:
        raise SpecError(f"--workers is {workers}; give at least 1")
    for strategy in specs.values():
        build_strategy(strategy, surface.space, seed=0)  # unknown names fail before anything runs
    wanted = reference or (REFERENCE if REFERENCE in specs else next(iter(specs)))
    if wanted not in specs:
        raise SpecError(unknown_name("strategy of --reference", wanted, specs))
    kept = _kept(output, question)
    if output is not None:  # one that cannot be written fails before anything runs
        try:
            _write(output, _result(question, kept, None))
        except StoreError as error:
            raise OutputError(str(error)) from None
    written = time.monotonic()
    done = [one for one in kept if one.strategy in specs and one.seed < seeds]
    total = len(specs) * seeds

    def on_replay(replay: Replay) -> None:
        nonlocal written
        done.append(replay)
        if output is not None and time.monotonic() - written > WRITE_SECONDS:
            _write(output, _result(question, _all(kept, done), None))
            written = time.monotonic()
        on_progress(len(done), total, replay.strategy)

    processes = workers if workers is not None else available_cores()
    try:
        replays = run_replays(question, specs, build_strategy, kept, on_replay, processes)
    finally:
        if output is not None:
            _write(output, _result(question, _all(kept, done), None))
    result = _result(question, replays, wanted)
    if output is not None:
        _write(output, {**result, "replays": [asdict(one) for one in _all(kept, replays)]})
    return {key: value for key, value in result.items() if key != "replays"}


def _all(kept: Sequence[Replay], more: Sequence[Replay]) -> list[Replay]:
    return list({(one.strategy, one.seed): one for one in [*kept, *more]}.values())


def named_surface(table: str, schedule: int | None = None) -> Surface:
    """Make the surface of a table or a formula.

    Args:
        table: file of a table, or name of one of ours or of a formula.
        schedule: as in :func:`kdnas.tabular.surface.surface_of`.

    Raises:
        SpecError: it is none of these, or makes no surface.
    """
    packaged = packaged_tables()
    if Path(table).suffix in ENDINGS or table in packaged:
        return surface_of(named_table(table), Path(table).stem, schedule)
    if table not in SYNTHETIC:
        raise SpecError(
            f"--table {table!r} is neither a .parquet or .csv file nor one of "
            f"{', '.join([*packaged, *SYNTHETIC])}; write one of these"
        )
    if schedule is not None:
        raise SpecError(
            f"--schedule is {schedule}, and {table} is a formula, whose trainings have no length; "
            "leave it out, or take a table"
        )
    return synthetic(table)


def _whole_numbers(option: str, texts: Sequence[str]) -> tuple[int, ...]:
    try:
        return tuple(int(text) for text in texts)
    except ValueError:
        raise SpecError(
            f"{option} {','.join(texts)!r} holds something else than whole numbers; write 20,60"
        ) from None


def _specs(names: Sequence[str] | None, surface: Surface) -> dict[str, ControllerSpec]:
    """The strategies by the names under which they are compared."""
    if names is None:
        read = len(surface.starts) == len(surface.space)
        names = [
            *(name for name in STRATEGIES if read or not name.startswith("reading")),
            "controller-paper",
        ]
    return {name: _spec(name) for name in names}


def _spec(name: str) -> ControllerSpec:
    known = [*strategy_names(), *VARIANTS]
    if ":" not in name and name not in known:
        raise SpecError(unknown_name("strategy", name, known))
    return ControllerSpec.read({"strategy": VARIANTS.get(name, name)}, "--strategies")


def _kept(output: Path | None, question: Question) -> list[Replay]:
    """Replays of an earlier run of the same question."""
    if output is None or not output.exists():
        return []
    try:
        told = json.loads(output.read_text("utf-8"))
        asked, replays = told["question"], [_replay(one) for one in told["replays"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SpecError(
            f"{output} holds no results of a comparison ({error!r}); choose another --output"
        ) from None
    if asked != question.fingerprint:
        raise SpecError(
            f"{output} holds results of another table, goal or budget; choose another --output, or "
            "remove it"
        )
    return replays


def _replay(told: dict[str, Any]) -> Replay:
    lists: dict[str, Any] = {key: tuple(told.get(key, ())) for key in ("order", "stopped")}
    return Replay(**{**told, **lists})


def _result(question: Question, replays: Sequence[Replay], reference: str | None) -> dict[str, Any]:
    surface, spec = question.surface, question.spec
    is_front = spec.goal == "front"
    return {
        "table": surface.name,
        "question": question.fingerprint,
        "num_states": len(surface.space),
        "num_states_of_axes": num_states(surface.space.axes, surface.space.head_multiple),
        "steps": surface.steps,
        "num_allowed": len(question.allowed),
        "goal": spec.goal,
        "num_of_goal": None if is_front else len(question.judge.goal_states),
        "volume_of_goal": SOLVED_VOLUME if is_front else None,
        "latency_ratios": list(LATENCY_RATIOS),
        "seeds": question.seeds,
        "budgets": list(question.budgets),
        "candidates": question.candidates,
        "reward": spec.reward.to_json(),
        "limits": spec.limits.to_json(),
        "rungs": list(spec.proxy.rungs),
        "keep": spec.proxy.keep,
        "reference": reference,
        "knows_starts": bool(surface.starts),
        "knows_noise": bool(surface.noise),
        "teacher_ms": surface.teacher_ms,
        "knows_teacher": surface.knows_teacher,
        "knows_sizes": surface.knows_sizes,
        "standings": []
        if reference is None
        else [row.to_json() for row in standings(question, replays, reference)],
        "curves": []
        if reference is None
        else [curve.to_json() for curve in curves(question, replays)],
        "replays": [asdict(one) for one in replays],
    }


def _write(output: Path, result: dict[str, Any]) -> None:
    try:
        write_atomically(output, (json.dumps(result) + "\n").encode())
    except OSError as error:
        raise StoreError(
            f"{output} could not be written ({error.strerror or error}); choose another --output"
        ) from None
