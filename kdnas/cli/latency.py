"""``kdnas latency``: build, show and verify latency tables of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from kdnas.architecture import Architecture
from kdnas.cli.options import common
from kdnas.cli.options.inputs import gather
from kdnas.cli.options.places import nested
from kdnas.cli.screens.console import bar, say, say_each
from kdnas.cli.stored import stored
from kdnas.cli.tables.answers import answer
from kdnas.errors import NotFoundError, SpecError, unknown_name
from kdnas.records import LatencyProfile, LatencyTable
from kdnas.settings import Settings

if TYPE_CHECKING:
    from kdnas.latency.table import LatencyCheck
    from kdnas.models.teacher import TeacherHandle
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

    thoroughness = {"budget_seconds": budget_seconds, "exhaustive": exhaustive}
    target = _target(teacher, space, device, threads, length, dtype, **thoroughness)
    with stored() as (database, _), bar("latency", 1.0) as shown:
        table = ensure_latencies(
            database,
            target.spec,
            target.handle,
            target.space,
            lambda share, text: shown.at(share, note=text),
            say,
            anew=True,
        )
    answer(_summary(table), as_json, _summary_lines(table))


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
    table = _stored_table(_target(teacher, space, device, threads, length, dtype))
    if arch is None:
        entries = [_row(table, text) for text in table.entries]
        answer({**_summary(table), "entries": entries}, as_json, _summary_lines(table))
        return
    text = str(Architecture.parse(arch))
    if text not in table.entries:
        raise NotFoundError(
            f"architecture {text} is not in the latency table; choose one of the space's states, "
            "or build the table with another --space"
        )
    row = _row(table, text)
    how = "measured" if row["measured"] else "from the block model"
    said = f"{text}: {row['latency_ms']:.3f} ms, {row['ratio']:.3f} of the teacher's ({how})"
    answer(row, as_json, [said])


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
    answer(_check_rows(check), as_json, _check_lines(check))


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
    from kdnas.latency.measure import current_profile
    from kdnas.models.teacher import prepare_teacher
    from kdnas.search_space import SearchSpace
    from kdnas.specs.parts import TeacherSpec
    from kdnas.specs.search import LatencySpec

    data = {"device": device, "threads": threads, "length": length, "dtype": dtype, **thoroughness}
    spec = LatencySpec.read(data, "latency options")
    if space not in {"paper", "scaled"}:
        raise SpecError(unknown_name("space", space, ("paper", "scaled")))
    inputs = gather("search", nested({"teacher.ref": teacher}), Settings.from_environment())
    say_each(inputs.lines(("teacher",)))
    handle = prepare_teacher(TeacherSpec.read(inputs.data.get("teacher", {}), "teacher"))
    check_length("--length", length, handle)
    states = SearchSpace.paper() if space == "paper" else SearchSpace.scaled_to(handle.shape)
    return _Target(handle, states, current_profile(spec), spec)


def _stored_table(target: _Target) -> LatencyTable:
    from api.inputs.preparation import stored_latencies

    handle, profile = target.handle, target.profile
    with stored() as (database, _):
        table = stored_latencies(database, profile, handle)
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
    return {
        "profile": asdict(table.profile),
        "family": table.family,
        "teacher": table.teacher_fingerprint,
        "teacher_ms": table.teacher_ms,
        "num_entries": len(table.entries),
        "seconds": table.seconds,
        "quality": dict(table.quality),
    }


def _summary_lines(table: LatencyTable) -> Iterator[str]:
    ordered = sorted(table.entries.values(), key=lambda entry: entry.latency_ms)
    p, q = table.profile, table.quality
    yield f"{p.device}, {p.threads} threads, {p.length} tokens, {p.dtype}, {p.runtime}"
    yield f"{len(ordered)} architectures in {table.seconds:.0f} s"
    yield f"teacher   {table.teacher_ms:9.3f} ms"
    for name, share in (("fastest", 0.0), ("median", 0.5), ("slowest", 1.0)):
        entry = ordered[round(share * (len(ordered) - 1))]
        ratio = entry.latency_ms / table.teacher_ms
        yield f"{name:9} {entry.latency_ms:9.3f} ms  {ratio:.3f} ×  {entry.architecture}"
    if "median_error" in q:
        yield (
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


def _check_lines(check: LatencyCheck) -> Iterator[str]:
    yield f"{'architecture':24} {'measured ms':>12} {'table ms':>10} {'error':>8}"
    for state in sorted(check.states, key=lambda state: state.measured_ms):
        yield (
            f"{state.architecture!s:24} {state.measured_ms:12.3f} {state.table_ms:10.3f} "
            f"{state.error:+8.1%}"
        )
    yield (
        f"{len(check.states)} students: median error {check.median_error:.1%}, 90 % within "
        f"{check.p90_error:.1%}, Spearman {check.spearman:.4f}"
    )
