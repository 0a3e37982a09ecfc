"""Which students a pipeline distils: what the search found best, and what it is compared with.

A pure choice from what is stored: made again from the same rows it is the same.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm

from kdnas.architecture import ACTIVATIONS, Architecture
from kdnas.db.records import MemberFigures, NewMember, Reason
from kdnas.models.cost import EmbeddingShape, count_parameters
from kdnas.records import ExploredState, LatencyTable, SearchFacts
from kdnas.search.reward import best_under, rank_key
from kdnas.search_space import SearchSpace
from kdnas.specs.objective_base import ObjectiveSpec
from kdnas.specs.parts import ModelSpec
from kdnas.specs.pipeline import ChooseSpec, PipelineSpec
from kdnas.specs.search import SearchSpec

Budget = tuple[float, str]
"""Milliseconds, and the budget in words: ``within 6 ms``."""


@dataclass(frozen=True)
class Choice:
    """The members of a pipeline in their order, and what to say of the choice.

    Attributes:
        members: the teacher first if it is evaluated, then its variants, the smallest cuts for
            the students among them, then each student once, and at last each as it starts.
        num_chosen: how many of them the search has chosen.
        notes: sentences for the reader of the results.
    """

    members: tuple[NewMember, ...]
    num_chosen: int
    notes: tuple[str, ...]


def choose(
    spec: PipelineSpec,
    search: SearchSpec,
    facts: SearchFacts,
    states: Sequence[ExploredState],
    latencies: LatencyTable | None,
) -> Choice:
    """Choose the members of a pipeline.

    Args:
        spec: the request.
        search: of the search, as it ran.
        facts: what preparing it found out.
        states: that it has explored.
        latencies: the table that it worked with, if it is there.
    """
    notes: list[str] = []
    reasons: dict[Architecture, list[Reason]] = {}
    for state, about in _chosen(spec, search, facts, states, notes):
        student = Architecture.parse(state.architecture)
        reasons.setdefault(student, []).append(Reason("chosen", about))
    num_chosen = len(reasons)
    if num_chosen:
        for baseline, about in _baselines(spec, search, facts, notes):
            reasons.setdefault(baseline, []).append(Reason("baseline", about))
        seed = Reason("random", f"seed {spec.baselines.seed}")
        reasons |= {one: [seed] for one in _random_picks(spec, facts, reasons.keys(), notes)}
    explored = {state.architecture: state for state in states}
    students = [
        NewMember(
            tuple(why), student, _figures(student, explored.get(str(student)), facts, latencies)
        )
        for student, why in reasons.items()
    ]
    cuts = _cut_latencies(facts, latencies)
    asked = [
        (one.int8, one.kept_layers(facts.teacher["layers"])) for one in spec.baselines.variants
    ]
    if spec.baselines.smallest_cuts:
        asked += [(False, kept) for kept in _smallest_cuts(students, cuts, notes)]
    forms = list(_variants(asked, spec, search, facts, cuts))
    if spec.baselines.undistilled:
        students += [_undistilled(student) for student in students]
    if spec.evaluation.teacher:
        whole = _figures_of_teacher(facts, facts.teacher["layers"], facts.teacher_ms)
        forms.insert(0, NewMember((Reason("teacher", search.teacher.ref),), figures=whole))
    return Choice((*forms, *students), num_chosen, tuple(notes))


def _undistilled(student: NewMember) -> NewMember:
    """Return a student as it starts: as large and as fast, and unknown to the search."""
    figures = replace(student.figures, reward=None, loss_relative=None, loss_output=None)
    return NewMember((Reason("undistilled", "as it starts"),), student.architecture, figures)


def _cut_latencies(facts: SearchFacts, latencies: LatencyTable | None) -> dict[int, float]:
    """Return the milliseconds of the teacher's lowest layers alone, by how many they are.

    Its layers take equally long, so the latency of a depth that the table lacks lies on the line
    through the depths around it, or through the nearest two. Empty where the table has no depth
    but the teacher's own.
    """
    layers: int = facts.teacher["layers"]
    known = {layers: facts.teacher_ms}
    if latencies is not None:
        depths = {kept: cut_teacher(facts, kept) for kept in range(1, layers + 1)}
        known |= {k: latencies.ms(a) for k, a in depths.items() if str(a) in latencies.entries}
    if len(known) < 2:
        return {}
    ends = sorted(known)

    def ms(kept: int) -> float:
        after = min(max(bisect(ends, kept), 1), len(ends) - 1)
        low, high = ends[after - 1], ends[after]
        return known[low] + (known[high] - known[low]) * (kept - low) / (high - low)

    return {kept: known.get(kept, ms(kept)) for kept in range(1, layers)}


def _smallest_cuts(
    students: Sequence[NewMember], cuts: Mapping[int, float], notes: list[str]
) -> list[int]:
    """Return the fewest layers with which the teacher is not faster, for all students.

    Any of them may be the one to take. A student that is slower than every cut has none.
    """
    if students and not cuts:
        notes.append(
            "the latency table has none of the teacher's lowest layers alone, so its smallest cuts "
            "that are not faster are not known, and none is evaluated"
        )
    known = [one.figures.latency_ms for one in students if one.figures.latency_ms is not None]
    slower = [[kept for kept in sorted(cuts) if cuts[kept] >= ms] for ms in known]
    return sorted({kept[0] for kept in slower if kept})


def _variants(
    asked: Sequence[tuple[bool, int]],
    spec: PipelineSpec,
    search: SearchSpec,
    facts: SearchFacts,
    cuts: Mapping[int, float],
) -> Iterator[NewMember]:
    """Yield the teacher made smaller without distilling, each form once.

    Args:
        asked: whether in 8 bits, and with how many of its layers.
        spec: of the pipeline.
        search: of the search.
        facts: have the teacher's sizes.
        cuts: milliseconds of its lowest layers alone, by how many they are.
    """
    seen = set()
    for int8, kept in asked:
        entries = {"int8": int8, "keep_layers": kept if kept < facts.teacher["layers"] else None}
        model = spec.evaluation_of(ModelSpec(ref=search.teacher.ref), entries)
        if not model.variant or model.variant in seen:
            continue  # all of its layers are kept, or it is there already
        seen.add(model.variant)
        ms = None if int8 else cuts.get(kept)  # the table knows nothing of 8 bits
        figures = _figures_of_teacher(facts, kept, ms)
        yield NewMember((Reason("variant", model.model_name),), figures=figures, variant=entries)


def _figures_of_teacher(facts: SearchFacts, layers: int, ms: float | None) -> MemberFigures:
    return MemberFigures(
        latency_ms=ms,
        latency_ratio=None if ms is None else ms / facts.teacher_ms,
        params_millions=params_millions(cut_teacher(facts, layers), facts),
    )


def cut_teacher(facts: SearchFacts, layers: int) -> Architecture:
    """Return the teacher's architecture with so many layers."""
    own = facts.teacher
    activation = own["activation"] if own["activation"] in ACTIVATIONS else ACTIVATIONS[0]
    return Architecture(layers, own["heads"], own["hidden"], own["intermediate"], activation)


def _chosen(
    spec: PipelineSpec,
    search: SearchSpec,
    facts: SearchFacts,
    states: Sequence[ExploredState],
    notes: list[str],
) -> Iterator[tuple[ExploredState, str]]:
    """Yield what the search has chosen, the best or the smallest budget first."""
    way = spec.choose
    if way.top is not None:
        ranked = sorted(states, key=rank_key)[: way.top]
        if len(ranked) < way.top:
            notes.append(
                f"the search explored {len(ranked)} students with a reward, so {len(ranked)} are "
                f"chosen instead of {way.top}"
            )
        for rank, state in enumerate(ranked, 1):
            yield state, f"reward no. {rank}"
        return
    for budget_ms, about in sorted(set(budgets(way, facts.teacher_ms))):
        found = best_under(states, budget_ms, search.reward.loss)
        if found is None:
            fastest = min((state.latency_ms for state in states), default=None)
            known = "" if fastest is None else f"; the fastest takes {fastest:.3g} ms"
            notes.append(f"the search explored no student {about}{known}")
        else:
            yield found, about


def budgets(way: ChooseSpec, teacher_ms: float | None) -> list[Budget]:
    """Return the budgets that are asked for; shares of a latency that is not known are none."""
    return [(ms, f"within {ms:g} ms") for ms in way.latency_budgets_ms] or [
        (share * teacher_ms, f"within {share:g} of the teacher's latency")
        for share in way.latency_budgets_ratio
        if teacher_ms is not None
    ]


def _baselines(
    spec: PipelineSpec, search: SearchSpec, facts: SearchFacts, notes: list[str]
) -> Iterator[tuple[Architecture, str]]:
    """Yield students of the teacher's proportions, those left out that cannot be made."""
    objective = spec.distillation.objective or search.objective
    start, copies = spec.distillation.student.over(search.student).init, None
    if objective.copies_layers or start == "copy":  # which makes students of its width only
        copies = f"the objective {objective.name}" if objective.copies_layers else "the start copy"
    for depth, width in spec.baselines.proportions:
        about = f"{depth:g} of the layers, {width:g} of the width"
        student = _proportioned(depth, width, facts, objective)
        if copies is None or student.hidden == facts.teacher["hidden"]:
            yield student, about
        else:
            notes.append(f"no baseline of {about}: {copies} wants the teacher's width")


def _proportioned(
    depth: float, width: float, facts: SearchFacts, objective: ObjectiveSpec
) -> Architecture:
    """Scale the teacher; its width goes in steps into which its heads fit.

    Args:
        depth: share of the layers.
        width: share of the hidden and the intermediate size.
        facts: have the teacher's sizes.
        objective: of the full distillations.
    """
    own = cut_teacher(facts, max(1, _rounded(depth * facts.teacher["layers"])))
    step = lcm(own.heads * facts.head_multiple, objective.width_multiple)
    if own.hidden % step:
        step = own.heads * facts.head_multiple  # the relation heads are refused in any case
    hidden = max(1, _rounded(width * own.hidden / step)) * step
    inner = max(1, _rounded(own.intermediate * hidden / own.hidden))
    return replace(own, hidden=hidden, intermediate=inner)


def _rounded(value: float) -> int:
    return int(value + 0.5)


def _random_picks(
    spec: PipelineSpec, facts: SearchFacts, taken: Collection[Architecture], notes: list[str]
) -> list[Architecture]:
    """Draw states of the space within the search's limits that are no members yet."""
    axes = {name: tuple(values) for name, values in facts.axes.items()}
    space = SearchSpace(**axes, head_multiple=facts.head_multiple)
    allowed = range(len(space)) if facts.allowed is None else facts.allowed
    free = [space[index] for index in allowed if space[index] not in taken]
    wanted = spec.baselines.random
    if len(free) < wanted:
        notes.append(
            f"the space has {len(free)} other students within the limits, so {len(free)} are "
            f"picked at random instead of {wanted}"
        )
    return random.Random(spec.baselines.seed).sample(free, min(wanted, len(free)))


def _figures(
    architecture: Architecture,
    state: ExploredState | None,
    facts: SearchFacts,
    latencies: LatencyTable | None,
) -> MemberFigures:
    """Collect what is known of a student: by the search, else from the latency table."""
    if state is not None:
        return MemberFigures(
            reward=state.reward,
            loss_relative=state.losses.relative,
            loss_output=state.losses.output,
            latency_ms=state.latency_ms,
            latency_ratio=state.latency_ratio,
            params_millions=state.params_millions,
        )
    figures = MemberFigures(params_millions=params_millions(architecture, facts))
    if latencies is None or str(architecture) not in latencies.entries:
        return figures
    ms, ratio = latencies.ms(architecture), latencies.ratio(architecture)
    return replace(figures, latency_ms=ms, latency_ratio=ratio)


def params_millions(architecture: Architecture, facts: SearchFacts) -> float:
    """Count the parameters of a model of the teacher's family, in millions."""
    return count_parameters(architecture, EmbeddingShape(**facts.embedding)) / 1e6
