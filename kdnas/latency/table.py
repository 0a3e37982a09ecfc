"""Latency tables: built within a time budget or exhaustively, and checked on whole students."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from kdnas.architecture import Architecture
from kdnas.errors import LatencyError
from kdnas.latency.block_model import (
    Block,
    BlockModel,
    BlockTiming,
    balanced_order,
    measured_depths,
)
from kdnas.latency.measure import (
    CAREFUL,
    DTYPES,
    QUICK,
    THOROUGH,
    Bench,
    Effort,
    Timing,
    require_this_machine,
)
from kdnas.latency.students import TIMED_VOCABULARY, StudentFactory
from kdnas.models.cost import EmbeddingShape, flops_per_token
from kdnas.models.teacher import TeacherHandle, load_teacher_model
from kdnas.records import LatencyEntry, LatencyProfile, LatencyTable, TeacherShape
from kdnas.search_space import SearchSpace

T = TypeVar("T")

BLOCKS_A_BATCH = 8
STATES_A_BATCH = 12
MOST_PASSES = 6
"""Over blocks and checked students; more bring little."""
CHECK_SHARE, VERIFY_SECONDS = 0.15, 60.0
"""Of a budget, and of a check by itself, while another pass is made over the checked students."""
MIN_BLOCKS = 24
"""Fewer timed blocks leave sizes unseen, so these are timed whatever the budget."""

Progress = Callable[[float, str], None]
"""Is told the share that is done, 0 … 1, and what is going on."""

OnEntries = Callable[[Sequence[LatencyEntry]], None]


@dataclass(frozen=True, slots=True)
class CheckedState:
    """A whole student beside what the table says of it."""

    architecture: Architecture
    measured_ms: float
    table_ms: float

    @property
    def error(self) -> float:
        """Signed relative error of the table."""
        return self.table_ms / self.measured_ms - 1.0


@dataclass(frozen=True, slots=True)
class LatencyCheck:
    """A table against whole students that its build did not use.

    Attributes:
        states: one row a student.
        median_error: median of the absolute relative errors.
        p90_error: their 90 % quantile.
        spearman: rank correlation of table and measurement; 1 for fewer than three students.
    """

    states: tuple[CheckedState, ...]
    median_error: float
    p90_error: float
    spearman: float

    @classmethod
    def of(cls, states: Sequence[CheckedState]) -> LatencyCheck:
        """Condense checked students; at least one."""
        from scipy.stats import spearmanr  # takes a second to load, and few commands come here

        errors = np.abs([state.error for state in states])
        measured = [state.measured_ms for state in states]
        ranked = len(states) > 2 and len(set(measured)) > 1
        rho = spearmanr([s.table_ms for s in states], measured).statistic if ranked else 1.0
        return cls(
            tuple(states), float(np.median(errors)), float(np.quantile(errors, 0.9)), float(rho)
        )

    @property
    def quality(self) -> dict[str, float]:
        """The figures that are stored with a table."""
        return {
            "median_error": self.median_error,
            "p90_error": self.p90_error,
            "spearman": self.spearman,
            "num_checked": float(len(self.states)),
        }


def family(shape: TeacherShape) -> str:
    """Key of what beside the architecture shapes a student's time."""
    return f"{shape.model_type}-p{shape.max_positions}-t{shape.type_vocab_size}"


class _Workshop:
    """What one run needs: the teacher, a factory of students and a bench."""

    def __init__(
        self,
        handle: TeacherHandle,
        profile: LatencyProfile,
        reference: Architecture,
        reference_ms: float | None = None,
    ) -> None:
        device = require_this_machine(profile)
        self.teacher = load_teacher_model(handle).to(device, DTYPES[profile.dtype])
        self.factory = StudentFactory(handle.config, device, profile.dtype)
        words = min(TIMED_VOCABULARY, handle.shape.vocab_size)
        self.bench = Bench(profile, self.factory.build(reference), words, reference_ms)

    def time(self, architectures: Sequence[Architecture], effort: Effort) -> list[Timing]:
        return self.bench.time([self.factory.build(a) for a in architectures], effort)

    def time_with_teacher(
        self, architectures: Sequence[Architecture], effort: Effort
    ) -> tuple[Timing, list[Timing]]:
        students = [self.factory.build(a) for a in architectures]
        teacher, *timings = self.bench.time([self.teacher, *students], effort)
        return teacher, timings


def build_latency_table(
    handle: TeacherHandle,
    space: SearchSpace,
    profile: LatencyProfile,
    *,
    budget_seconds: float,
    exhaustive: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
    known: Mapping[str, LatencyEntry] | None = None,
    on_entries: OnEntries | None = None,
) -> LatencyTable:
    """Find the latency of every state of a space, and of the teacher in the same run.

    Args:
        handle: the teacher.
        space: whose states the table covers.
        profile: the conditions, of this machine.
        budget_seconds: time that the whole build may take, roughly; not heeded by ``exhaustive``.
            Blocks are timed as long as it lasts, and the rest is predicted.
        exhaustive: time every whole student instead.
        seed: of the order of blocks and of the checked students.
        progress: is told how far the build is.
        known: entries of an earlier exhaustive build, architecture text → entry, not timed again.
        on_entries: is given entries as they come, to be stored (exhaustive builds only).

    Raises:
        LatencyError: a model could not be timed, or the profile is of other hardware.
    """
    report = progress or (lambda share, text: None)
    if exhaustive:
        store = on_entries or (lambda entries: None)
        return _measure_all(handle, space, profile, seed, report, known or {}, store)
    return _model_all(handle, space, profile, budget_seconds, seed, report)


def verify_latency_table(
    handle: TeacherHandle,
    space: SearchSpace,
    table: LatencyTable,
    num_students: int = 30,
    seed: int = 1,
    progress: Progress | None = None,
) -> LatencyCheck:
    """Time whole students that the table's build did not use, beside the table's figures.

    The build's reference model is timed along, and the machine's drift since then is divided out.

    Raises:
        LatencyError: the table has no modelled entry of the space, or is of other hardware.
    """
    depths = measured_depths(space.layers)
    candidates = [
        state
        for state in space.states
        if (entry := table.entries.get(str(state))) and not entry.measured
    ]
    held_out = [a for a in candidates if a.layers not in depths] or candidates
    if not held_out:
        raise LatencyError(
            "the table has no modelled entry of this space to check; an exhaustive table was "
            "measured whole, so build one without --exhaustive or choose the table's own space"
        )
    chosen = _sample(held_out, num_students, seed)
    reference = _middling(space.states, table.profile.length)
    workshop = _Workshop(handle, table.profile, reference, table.quality.get("reference_ms"))

    timed = 0

    def once() -> list[Timing]:
        nonlocal timed
        timings: list[Timing] = []
        for batch in _batches(chosen, STATES_A_BATCH):
            timings += workshop.time(batch, THOROUGH)
            timed += len(batch)
            if progress:
                share, number = timed / len(chosen) / MOST_PASSES, -(-timed // len(chosen))
                text = f"{len(timings)} of {len(chosen)} students (pass {number})"
                progress(share, text)
        return timings

    passes = _passes(once, VERIFY_SECONDS)
    rows = [
        CheckedState(a, Timing.typical(same).ms, table.ms(a))
        for a, *same in zip(chosen, *passes, strict=True)
    ]
    return LatencyCheck.of(rows)


def _model_all(
    handle: TeacherHandle,
    space: SearchSpace,
    profile: LatencyProfile,
    budget_seconds: float,
    seed: int,
    report: Progress,
) -> LatencyTable:
    started = time.monotonic()
    report(0.0, "loading the teacher")
    depths = measured_depths(space.layers)
    blocks = balanced_order(sorted({Block.of(a) for a in space.states}), seed)
    workshop = _Workshop(handle, profile, _middling(space.states, profile.length))

    # Checked students come first, so that what they leave of the budget is known.
    unused = [a for a in space.states if a.layers not in depths] or list(space.states)
    roomy = budget_seconds >= 120
    checked = _sample(unused, 30 if roomy else 18, seed)
    check_effort = CAREFUL if roomy else THOROUGH

    def check_once() -> list[Timing]:
        teacher_timings, timings = [], []
        for batch in _batches(checked, STATES_A_BATCH):
            teacher, own = workshop.time_with_teacher(batch, check_effort)
            teacher_timings.append(teacher)
            timings += own
            report(0.0, f"timing the teacher and {len(checked)} students for the check")
        return [Timing.typical(teacher_timings), *timings]

    def work(architectures: Sequence[Architecture]) -> float:
        return sum(_work(a, profile.length) for a in architectures)

    check_started = time.monotonic()
    passes = _passes(check_once, CHECK_SHARE * budget_seconds if roomy else 0.0)
    teacher, *measured = [Timing.typical(same) for same in zip(*passes, strict=True)]
    rounds = check_effort.rounds * len(passes)
    pace = (time.monotonic() - check_started) / work(checked) / rounds
    all_blocks = work([block.at(depth) for block in blocks for depth in depths])
    left = budget_seconds * 0.95 - (time.monotonic() - started)
    effort = THOROUGH if all_blocks * pace * THOROUGH.rounds <= left else QUICK

    def tell(share: float, text: str) -> None:
        report(min(max(share, (time.monotonic() - started) / budget_seconds), 1.0), text)

    timings_of_blocks = _time_blocks(workshop, blocks, depths, effort, left, tell)
    gated = EmbeddingShape.of(handle.shape).gated
    model = BlockModel(timings_of_blocks, profile.length, gated)
    predicted = model.predict(space.states)
    entries = {
        str(a): LatencyEntry(a, float(ms), 0.0, measured=False)
        for a, ms in zip(space.states, predicted, strict=True)
    }
    check = LatencyCheck.of(
        [
            CheckedState(a, timing.ms, entries[str(a)].latency_ms)
            for a, timing in zip(checked, measured, strict=True)
        ]
    )
    report(1.0, "done")
    return LatencyTable(
        profile=profile,
        family=family(handle.shape),
        teacher_fingerprint=handle.shape.fingerprint,
        teacher_ms=teacher.ms,
        entries=entries,
        quality={
            **check.quality,
            "num_blocks": float(len(blocks)),
            "num_blocks_timed": float(len(timings_of_blocks)),
            "block_noise": model.noise,
            "reference_ms": workshop.bench.pace_ms,
        },
        seconds=time.monotonic() - started,
    )


def _measure_all(
    handle: TeacherHandle,
    space: SearchSpace,
    profile: LatencyProfile,
    seed: int,
    report: Progress,
    known: Mapping[str, LatencyEntry],
    store: OnEntries,
) -> LatencyTable:
    started = time.monotonic()
    # The reference is a state of the space and the first entry: a build that is taken up again
    # finds in it what the machine's pace was when the first one began.
    reference = _middling(space.states, profile.length)
    entries = {text: e for text, e in known.items() if e.measured and e.architecture in space}
    before = entries.get(str(reference))
    if before is None:
        entries = {}
    workshop = _Workshop(handle, profile, reference, before.latency_ms if before else None)
    teacher, (again,) = workshop.time_with_teacher([reference], THOROUGH)
    if before is None:
        pace_ms = workshop.bench.pace_ms
        first = LatencyEntry(reference, pace_ms, again.spread_ms, measured=True)
        entries[str(reference)] = first
        store([first])
    remaining = [a for a in space.states if str(a) not in entries]
    for batch in _batches(remaining, STATES_A_BATCH):
        timings = workshop.time(batch, THOROUGH)
        new = [
            LatencyEntry(a, t.ms, t.spread_ms, measured=True)
            for a, t in zip(batch, timings, strict=True)
        ]
        entries |= {str(entry.architecture): entry for entry in new}
        store(new)
        report(len(entries) / len(space), f"{len(entries)} of {len(space)} students timed")
    rows: list[CheckedState] = []
    for batch in _batches(_sample(space.states, 30, seed), STATES_A_BATCH):
        rows += [
            CheckedState(a, t.ms, entries[str(a)].latency_ms)
            for a, t in zip(batch, workshop.time(batch, THOROUGH), strict=True)
        ]
    return LatencyTable(
        profile=profile,
        family=family(handle.shape),
        teacher_fingerprint=handle.shape.fingerprint,
        teacher_ms=teacher.ms,
        entries={str(a): entries[str(a)] for a in space.states},
        quality=LatencyCheck.of(rows).quality,
        seconds=time.monotonic() - started,
    )


def _time_blocks(
    workshop: _Workshop,
    blocks: Sequence[Block],
    depths: Sequence[int],
    effort: Effort,
    seconds: float,
    tell: Progress,
) -> list[BlockTiming]:
    """Time as many blocks as fit into a time, and all of them again while that fits, too."""
    started, groups = time.monotonic(), list(_batches(blocks, BLOCKS_A_BATCH))

    def elapsed() -> float:
        return time.monotonic() - started

    def students(group: Sequence[Block]) -> list[Architecture]:
        return [block.at(depth) for block in group for depth in depths]

    def load(group: Sequence[Block]) -> float:
        return sum(_work(student, workshop.bench.profile.length) for student in students(group))

    def timed(number: int) -> list[BlockTiming]:
        group = groups[number]
        ms = iter([timing.ms for timing in workshop.time(students(group), effort)])
        return [BlockTiming(b, {depth: next(ms) for depth in depths}, number) for b in group]

    first: list[BlockTiming] = []
    done = 0.0
    for number, group in enumerate(groups):
        expected = load(group) * elapsed() / done if done else 0.0
        if len(first) >= min(MIN_BLOCKS, len(blocks)) and elapsed() + expected > seconds:
            return first
        first += timed(number)
        done += load(group)
        share = len(first) / len(blocks) / MOST_PASSES
        tell(share, f"{len(first)} of {len(blocks)} blocks timed")
    a_pass, passes = elapsed(), [first]
    while len(passes) < MOST_PASSES and elapsed() + a_pass <= seconds:
        again: list[BlockTiming] = []
        passes.append(again)
        for number in range(len(groups)):
            again += timed(number)
            share = (len(passes) - 1 + len(again) / len(blocks)) / MOST_PASSES
            tell(share, f"{len(again)} of {len(blocks)} blocks timed (pass {len(passes)})")
    return [_together(same) for same in zip(*passes, strict=True)]


def _passes(once: Callable[[], list[Timing]], seconds: float) -> list[list[Timing]]:
    """Time the same things again while another pass fits into a time.

    A machine with neighbours is slow for seconds at a time: passes that lie apart see both.
    """
    started, passes = time.monotonic(), [once()]
    while len(passes) < MOST_PASSES:
        elapsed = time.monotonic() - started
        if elapsed * (1 + 1 / len(passes)) > seconds:
            break
        passes.append(once())
    return passes


def _together(passes: Sequence[BlockTiming]) -> BlockTiming:
    """What several passes say of one block."""
    first = passes[0]
    ms_at = {d: float(np.median([one.ms_at[d] for one in passes])) for d in first.ms_at}
    return BlockTiming(first.block, ms_at, first.batch)


def _work(a: Architecture, length: int) -> float:
    """Roughly what an inference costs: its products, and 5 MFLOP's worth of overhead a layer."""
    return length * flops_per_token(a, length) + 5e6 * a.layers


def _middling(states: Sequence[Architecture], length: int) -> Architecture:
    """Return the state whose cost is at the lower third: quick to run, yet not all overhead."""
    ordered = sorted(states, key=lambda a: (_work(a, length), a))
    return ordered[len(ordered) // 3]


def _sample(states: Sequence[Architecture], count: int, seed: int) -> list[Architecture]:
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(states), size=min(count, len(states)), replace=False)
    return [states[int(i)] for i in chosen]


def _batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
