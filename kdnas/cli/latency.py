"""``kdnas latency``: build, show and verify latency tables of this machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from kdnas.cli.options import common

if TYPE_CHECKING:
    from kdnas.latency.table import LatencyCheck
    from kdnas.models.teacher import TeacherHandle
    from kdnas.records import LatencyProfile, LatencyTable
    from kdnas.search_space import SearchSpace
    from kdnas.specs.search import LatencySpec

app = typer.Typer(help="Build, show and verify latency tables.", no_args_is_help=True)

Space = Annotated[str, typer.Option(help="Which states: paper or scaled (to the teacher).")]
Device = Annotated[str, typer.Option(help="Where latency counts: cpu or cuda.")]
Threads = Annotated[int, typer.Option(help="Threads of one inference on a CPU.")]
Length = Annotated[int, typer.Option(help="Tokens of the one sequence.")]
Dtype = Annotated[str, typer.Option(help="float32 or bfloat16.")]


class _Target(NamedTuple):
    """What the options of every command of this group amount to."""

    handle: TeacherHandle
    space: SearchSpace
    profile: LatencyProfile
    spec: LatencySpec


@app.command()
def build(
    teacher: common.Teacher = None,
    space: Space = "scaled",
    device: Device = "cpu",
    threads: Threads = 1,
    length: Length = 32,
    dtype: Dtype = "float32",
    budget_seconds: Annotated[
        float, typer.Option(help="Time for the whole build, roughly; not heeded by --exhaustive.")
    ] = 300.0,
    exhaustive: Annotated[
        bool, typer.Option("--exhaustive", help="Time every whole student; can be resumed.")
    ] = False,
    as_json: common.Json = False,
) -> None:
    """Measure the latency of every state of a space, and of the teacher.

    Waits until nothing trains on this machine. An exhaustive build that was broken off goes on
    where it stopped.
    """
    from api.inputs.preparation import ensure_latencies
    from kdnas.cli.screens.console import bar, say
    from kdnas.db.migrate import open_database
    from kdnas.settings import Settings

    thoroughness = {"budget_seconds": budget_seconds, "exhaustive": exhaustive}
    target = _target(teacher, space, device, threads, length, dtype, **thoroughness)
    with open_database(Settings.from_environment()) as database, bar("latency", 1.0) as shown:
        table = ensure_latencies(
            database,
            target.spec,
            target.handle,
            target.space,
            lambda share, text: shown.at(share, note=text),
            say,
            anew=True,
        )
    if as_json:
        typer.echo(json.dumps(_summary(table)))
    else:
        _print_summary(table)


@app.command()
def show(
    arch: Annotated[
        str | None, typer.Option("--arch", help="One architecture, such as 3,4,288,768,gelu.")
    ] = None,
    teacher: common.Teacher = None,
    space: Space = "scaled",
    device: Device = "cpu",
    threads: Threads = 1,
    length: Length = 32,
    dtype: Dtype = "float32",
    as_json: common.Json = False,
) -> None:
    """Show the stored table of this machine, or one architecture of it."""
    from kdnas.architecture import Architecture
    from kdnas.errors import NotFoundError

    target = _target(teacher, space, device, threads, length, dtype)
    table = _stored_table(target)
    if arch is None:
        if as_json:
            entries = [_row(table, text) for text in table.entries]
            typer.echo(json.dumps({**_summary(table), "entries": entries}))
        else:
            _print_summary(table)
        return
    text = str(Architecture.parse(arch))
    if text not in table.entries:
        raise NotFoundError(
            f"architecture {text} is not in the latency table; choose one of the space's states, "
            "or build the table with another --space"
        )
    row = _row(table, text)
    if as_json:
        typer.echo(json.dumps(row))
    else:
        how = "measured" if row["measured"] else "from the block model"
        typer.echo(
            f"{text}: {row['latency_ms']:.3f} ms, {row['ratio']:.3f} of the teacher's ({how})"
        )


@app.command()
def verify(
    num_students: Annotated[
        int, typer.Option("--students", min=3, help="Whole students to time.")
    ] = 30,
    seed: Annotated[int, typer.Option(help="Which students.")] = 1,
    teacher: common.Teacher = None,
    space: Space = "scaled",
    device: Device = "cpu",
    threads: Threads = 1,
    length: Length = 32,
    dtype: Dtype = "float32",
    as_json: common.Json = False,
) -> None:
    """Time whole students that the build did not use, and compare with the stored table."""
    from kdnas.cli.screens.console import bar, say
    from kdnas.latency.device_lock import measuring_lock
    from kdnas.latency.table import verify_latency_table

    target = _target(teacher, space, device, threads, length, dtype)
    table = _stored_table(target)
    with bar("latency", 1.0) as shown, measuring_lock(on_wait=say):
        check = verify_latency_table(
            target.handle,
            target.space,
            table,
            num_students,
            seed,
            lambda share, text: shown.at(share, note=text),
        )
    if as_json:
        typer.echo(json.dumps(_check_rows(check)))
    else:
        _print_check(check)


def _target(
    teacher: str | None,
    space: str,
    device: str,
    threads: int,
    length: int,
    dtype: str,
    **thoroughness: float | bool,
) -> _Target:
    from api.inputs.preparation import check_length
    from kdnas.cli.options.inputs import gather, nested
    from kdnas.cli.screens.console import say
    from kdnas.errors import SpecError, unknown_name
    from kdnas.latency.measure import current_profile
    from kdnas.models.teacher import prepare_teacher
    from kdnas.search_space import SearchSpace
    from kdnas.settings import Settings
    from kdnas.specs.parts import TeacherSpec
    from kdnas.specs.search import LatencySpec

    data = {"device": device, "threads": threads, "length": length, "dtype": dtype, **thoroughness}
    spec = LatencySpec.read(data, "latency options")
    if space not in {"paper", "scaled"}:
        raise SpecError(unknown_name("space", space, ("paper", "scaled")))
    inputs = gather("search", nested({"teacher.ref": teacher}), Settings.from_environment())
    for line in inputs.lines(("teacher",)):
        say(line)
    handle = prepare_teacher(TeacherSpec.read(inputs.data.get("teacher", {}), "teacher"))
    check_length("--length", length, handle)
    states = SearchSpace.paper() if space == "paper" else SearchSpace.scaled_to(handle.shape)
    return _Target(handle, states, current_profile(spec), spec)


def _stored_table(target: _Target) -> LatencyTable:
    from kdnas.db.migrate import open_database
    from kdnas.db.repository import latencies
    from kdnas.errors import NotFoundError
    from kdnas.latency.table import family
    from kdnas.settings import Settings

    handle, profile = target.handle, target.profile
    with open_database(Settings.from_environment()) as database, database.read() as session:
        table = latencies.load_latency_table(
            session, profile.fingerprint, family(handle.shape), handle.shape.fingerprint
        )
    if table is None:
        raise NotFoundError(
            f"there is no latency table of teacher {handle.ref!r} for {profile.device}, "
            f"{profile.threads} threads, {profile.length} tokens, {profile.dtype}; run "
            "`kdnas latency build` with the same options"
        )
    return table


def _row(table: LatencyTable, text: str) -> dict[str, Any]:
    entry = table.entries[text]
    return {
        "architecture": text,
        "latency_ms": entry.latency_ms,
        "ratio": entry.latency_ms / table.teacher_ms,
        "spread_ms": entry.spread_ms,
        "measured": entry.measured,
    }


def _summary(table: LatencyTable) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "profile": asdict(table.profile),
        "family": table.family,
        "teacher": table.teacher_fingerprint,
        "teacher_ms": table.teacher_ms,
        "num_entries": len(table.entries),
        "seconds": table.seconds,
        "quality": dict(table.quality),
    }


def _print_summary(table: LatencyTable) -> None:
    ordered = sorted(table.entries.values(), key=lambda entry: entry.latency_ms)
    p, q = table.profile, table.quality
    typer.echo(f"{p.device}, {p.threads} threads, {p.length} tokens, {p.dtype}, {p.runtime}")
    typer.echo(f"{len(ordered)} architectures in {table.seconds:.0f} s")
    typer.echo(f"teacher   {table.teacher_ms:9.3f} ms")
    for name, share in (("fastest", 0.0), ("median", 0.5), ("slowest", 1.0)):
        entry = ordered[round(share * (len(ordered) - 1))]
        ratio = entry.latency_ms / table.teacher_ms
        typer.echo(f"{name:9} {entry.latency_ms:9.3f} ms  {ratio:.3f} ×  {entry.architecture}")
    if "median_error" in q:
        typer.echo(
            f"check on {q['num_checked']:.0f} whole students: median error "
            f"{q['median_error']:.1%}, 90 % within {q['p90_error']:.1%}, Spearman "
            f"{q['spearman']:.4f}"
        )


def _check_rows(check: LatencyCheck) -> dict[str, Any]:
    return {
        **check.quality,
        "students": [
            {
                "architecture": str(state.architecture),
                "measured_ms": state.measured_ms,
                "table_ms": state.table_ms,
                "error": state.error,
            }
            for state in check.states
        ],
    }


def _print_check(check: LatencyCheck) -> None:
    typer.echo(f"{'architecture':24} {'measured ms':>12} {'table ms':>10} {'error':>8}")
    for state in sorted(check.states, key=lambda state: state.measured_ms):
        typer.echo(
            f"{state.architecture!s:24} {state.measured_ms:12.3f} {state.table_ms:10.3f} "
            f"{state.error:+8.1%}"
        )
    typer.echo(
        f"{len(check.states)} students: median error {check.median_error:.1%}, 90 % within "
        f"{check.p90_error:.1%}, Spearman {check.spearman:.4f}"
    )
