"""How a pipeline came to its results: what was asked for, how long it took, what failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from api.pipelines import results
from api.pipelines.results import Failure, StageTime
from api.pipelines.second_step_report import second_step_setup
from kdnas.db.records import (
    DistillationRecord,
    EvaluationRecord,
    MemberRecord,
    OwnerKind,
    PipelineRecord,
    TaskDistillationRecord,
)
from kdnas.records import SearchRecord, StateCounts
from kdnas.specs.named import NamedSpec
from kdnas.specs.objective_base import ObjectiveSpec
from kdnas.specs.pipeline import ChooseSpec, PipelineSpec
from kdnas.specs.search import SearchSpec

Part = SearchRecord | DistillationRecord | EvaluationRecord | TaskDistillationRecord


def setup(
    spec: PipelineSpec,
    search: SearchSpec,
    counts: StateCounts | None,
    members: Sequence[MemberRecord],
    teacher: tuple[str | None, float | None],
) -> dict[str, str]:
    """Say how a pipeline was made: word → text.

    Args:
        spec: of the pipeline.
        search: of the search, as it ran.
        counts: of its states; None before it began.
        members: of the pipeline.
        teacher: its architecture and millions of parameters, where they are known.
    """
    told = {
        "Teacher": _teacher(search, *teacher),
        "Text": _text(search),
        "Objective": _objective(search.objective, spec.distillation.objective),
        "Search": _search(search, counts),
        "Chosen": _chosen(spec.choose),
        "Compared with": _baselines(spec, members),
        "Full distillation": _distillation(spec, members),
        "Evaluation": _evaluation(spec),
        "Second step": second_step_setup(spec),
        "Seeds": _seeds(spec, search),
    }
    return {word: text for word, text in told.items() if text}


def _teacher(search: SearchSpec, shape: str | None, params: float | None) -> str:
    about = [(shape or "").replace(",", ", "), f"{params:.1f} M parameters" if params else ""]
    return search.teacher.ref + _in_brackets([one for one in about if one])


def _text(search: SearchSpec) -> str:
    """Sources, and the fingerprint: ``pydocs`` is another text on every machine."""
    sources = ", ".join(search.corpus.source)
    mark = search.corpus.fingerprint
    return f"{sources} (corpus {mark})" if mark else sources


def _objective(searched: ObjectiveSpec, distilled: ObjectiveSpec | None) -> str:
    if distilled is None or distilled == searched:
        return _settings(searched)
    return f"{_settings(searched)} in the search, {_settings(distilled)} in the full distillation"


def _settings(asked: NamedSpec) -> str:
    own = asked.model_dump(mode="json", exclude_defaults=True, exclude={"name"})
    return asked.name + _in_brackets(_in_words(own))


def _in_words(changed: Mapping[str, object]) -> list[str]:
    return [f"{key.replace('_', ' ')} {value}" for key, value in changed.items()]


def _in_brackets(parts: Sequence[str]) -> str:
    return f" ({'; '.join(parts)})" if parts else ""


def _search(search: SearchSpec, counts: StateCounts | None) -> str:
    episodes, each = search.controller.episodes, search.controller.candidates
    rounds = f"{episodes} episode{'s' * (episodes > 1)} of {each} student{'s' * (each > 1)}"
    text = f"{_settings(search.controller.strategy)}, {rounds}"
    if counts is not None:
        text += f": {counts.explored} architectures, {counts.trained} of them trained"
        also = {
            "looked up": counts.reused,
            "stopped early": counts.stopped,
            "failed": counts.failed,
        }
        text += "".join(f", {count} {what}" for what, count in also.items() if count)
    proxy = search.proxy
    length = f"{proxy.steps} steps" if proxy.steps else f"{proxy.epochs:g} passes"
    return f"{text}, each for {length} over {100 * proxy.fraction:.3g} % of the text"


def _chosen(way: ChooseSpec) -> str:
    if way.top is not None:
        return "the highest reward" if way.top == 1 else f"the {way.top} highest rewards"
    budgets = [f"{ms:g} ms" for ms in sorted(way.latency_budgets_ms)]
    budgets += [f"{x:g} of the teacher's latency" for x in sorted(way.latency_budgets_ratio)]
    return f"the lowest loss within {', '.join(budgets)}"


def _baselines(spec: PipelineSpec, members: Sequence[MemberRecord]) -> str:
    asked = spec.baselines
    picks = "random pick" + "s" * (asked.random != 1)
    # A pipeline that chose before there were undistilled ones has none, whatever its request says.
    lacking = bool(members) and all(member.role != "undistilled" for member in members)
    said = [
        *(
            f"{depth:g} of the teacher's layers at {width:g} of its width"
            for depth, width in asked.proportions
        ),
        f"{asked.random} {picks} of the search's space" if asked.random else "",
        "each student undistilled, as it starts" if asked.undistilled and not lacking else "",
        *(
            "the teacher itself"
            + ("" if variant.layers is None else f" with {variant.layers:g} of its layers")
            + " in 8 bits" * variant.int8
            for variant in asked.variants
        ),
        "the smallest cut of the teacher that is not faster, of each student"
        if asked.smallest_cuts
        else "",
    ]
    return "; ".join(one for one in said if one)


def _distillation(spec: PipelineSpec, members: Sequence[MemberRecord]) -> str:
    training = spec.distillation.training
    totals = {m.distillation.total_steps for m in members if m.distillation}
    counted = [steps for steps in totals if steps]
    steps = training.steps or (counted[0] if len(counted) == 1 else None)
    length = f"{steps} steps" if steps else f"{training.epochs:g} passes over the text"
    return (
        f"{length} of {training.batch_size} sequences, learning rate {training.learning_rate:g}, "
        "once for each student"
    )


def _evaluation(spec: PipelineSpec) -> str:
    asked = spec.evaluation
    tasks = f" ({', '.join(asked.tasks)})" if asked.tasks else ""
    changed = asked.model_dump(
        mode="json",
        exclude_defaults=True,
        exclude={"suite", "tasks", "seeds", "data_dir", "teacher"},
    )
    source = f"data of {asked.data_dir or 'the Hugging Face hub'}"
    return ", ".join([f"{asked.suite}{tasks}", source, *_in_words(changed)])


def _seeds(spec: PipelineSpec, search: SearchSpec) -> str:
    seeds = spec.evaluation.seeds
    return (
        f"search {search.seed}, short trainings {search.proxy.seed}, "
        f"full distillation {spec.distillation.training.seed}, random picks "
        f"{spec.baselines.seed}, fine-tuning {', '.join(map(str, seeds))}"
    )


def stage_times(
    search: SearchRecord | None, members: Sequence[MemberRecord]
) -> tuple[StageTime, ...]:
    """Return when each stage that has begun began and ended."""
    parts: Mapping[results.Part, Sequence[Part]] = {
        "search": [] if search is None else [search],
        "distillation": [m.distillation for m in members if m.distillation],
        "evaluation": [one for m in members for one in m.evaluations],
        "task distillation": [one for m in members for one in m.task_distillations],
    }
    return tuple(_stage_time(stage, timed) for stage, timed in parts.items() if timed)


def _stage_time(stage: results.Part, parts: Sequence[Part]) -> StageTime:
    begun = [(part.started_at, part.finished_at) for part in parts if part.started_at]
    ends = [part.finished_at for part in parts if part.finished_at]
    start = min((one for one, _ in begun), default=None)
    end = max(ends) if len(ends) == len(parts) else None
    return StageTime(
        stage,
        start,
        end,
        None if start is None or end is None else (end - start).total_seconds(),
        sum((last - first).total_seconds() for first, last in begun if last is not None),
    )


def failures(search: SearchRecord | None, members: Sequence[MemberRecord]) -> tuple[Failure, ...]:
    """Return what failed, in the order of the stages."""
    made = [(m, m.distillation) for m in members if m.distillation is not None]
    parts: list[tuple[str, Part]] = []
    parts += [] if search is None else [(f"search {search.name}", search)]
    parts += [(f"distillation of {member_name(m)}", one) for m, one in made]
    parts += [(_evaluation_of(m, one), one) for m in members for one in m.evaluations]
    parts += [
        (f"distillation of {member_name(m)} for {one.task}", one)
        for m in members
        for one in m.task_distillations
    ]
    return tuple(Failure(name, one.error or "") for name, one in parts if one.status == "failed")


def member_name(member: MemberRecord) -> str:
    """Name a model as a report does; no other of its pipeline has that name."""
    if member.architecture is None:
        return member.reasons[0].about
    undistilled = " undistilled" if member.role == "undistilled" else ""
    return f"{member.architecture}{undistilled}"


def _evaluation_of(member: MemberRecord, one: EvaluationRecord) -> str:
    model = one.model if member.architecture is None else member_name(member)
    return f"evaluation of {model} on {one.task}, seed {one.seed}"


def remedy(pipeline: PipelineRecord, found: Sequence[Failure]) -> str:
    """Say how to go on after failures; empty if there is nothing to go on with."""
    if not found or pipeline.status not in ("failed", "paused"):
        return ""
    ways: Mapping[OwnerKind, str] = {
        "cli": f"`kdnas launch --resume {pipeline.name}`",
        "service": f'"Resume" on its page, or PATCH /api/v1/pipelines/{pipeline.name} with '
        '{"action": "resume"},',
    }
    return f"{ways[pipeline.owner_kind]} tries again what failed; what has succeeded is kept."
