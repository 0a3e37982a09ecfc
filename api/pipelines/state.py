"""What comes next in a pipeline, from the statuses of its parts alone: a pure function."""

from __future__ import annotations

from dataclasses import dataclass

from kdnas.records import PipelineStage, SearchStatus

OPEN: frozenset[SearchStatus] = frozenset({"queued", "running", "paused"})


@dataclass(frozen=True, slots=True)
class MemberState:
    """Where a member stands.

    Attributes:
        distillation: of a student; None for the teacher in all forms, which is there already.
        evaluations: none until they are asked for.
        undistilled: whether it is a student as it starts, which is no answer by itself.
    """

    distillation: SearchStatus | None
    evaluations: tuple[SearchStatus, ...] = ()
    undistilled: bool = False

    @property
    def wants_evaluations(self) -> bool:
        """Whether its model is there, and its evaluations have not been asked for."""
        return self.distillation in {None, "succeeded"} and not self.evaluations


@dataclass(frozen=True, slots=True)
class PipelineState:
    """Where a pipeline stands.

    Attributes:
        status: its own.
        search: its search's; None if that was deleted.
        members: None until the search has chosen them.
    """

    status: SearchStatus
    search: SearchStatus | None
    members: tuple[MemberState, ...] | None = None

    @property
    def at_work(self) -> bool:
        """Whether a part is worked on, or will be as soon as there is room."""
        parts = [self.search]
        for member in self.members or ():
            parts += [member.distillation, *member.evaluations]
        return "queued" in parts or "running" in parts


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now.

    Attributes:
        status: of the pipeline.
        stage: of the pipeline.
        choose: whether to choose the members from the search, and to ask for their distillations.
        evaluate: positions of the members whose evaluations are to be asked for.
    """

    status: SearchStatus
    stage: PipelineStage
    choose: bool = False
    evaluate: tuple[int, ...] = ()


def next_step(state: PipelineState) -> Step | None:
    """Decide what comes next.

    A pipeline runs on as long as anything in it can; what failed keeps nothing else from its end.
    What somebody has cancelled is left out. One that rests goes on when a part of it was resumed
    by itself.

    Returns:
        None if it does not go on: it is paused, or over.
    """
    resumed = state.status == "paused" and state.at_work
    if state.status not in {"queued", "running"} and not resumed:
        return None
    if state.members is None:
        return _after_search(state)
    distilled = [m.distillation for m in state.members if m.distillation is not None]
    scored = [status for member in state.members for status in member.evaluations]
    wanted = tuple(i for i, member in enumerate(state.members) if member.wants_evaluations)
    open_ones = [status for status in (*distilled, *scored) if status in OPEN]
    if open_ones or wanted:
        stage: PipelineStage = "distillation" if OPEN & set(distilled) else "evaluation"
        resting = bool(open_ones) and set(open_ones) == {"paused"} and not wanted
        return Step("paused" if resting else "running", stage, evaluate=wanted)
    students = [member.distillation for member in state.members if not member.undistilled]
    if "failed" in distilled or "succeeded" not in students:
        return Step("failed", "distillation")
    if "failed" in scored or "succeeded" not in scored:
        return Step("failed", "evaluation")
    return Step("succeeded", "done")


def _after_search(state: PipelineState) -> Step:
    if state.search in {"queued", "running"}:
        waits = state.search == state.status == "queued"
        return Step("queued" if waits else "running", "search")
    if state.search == "succeeded":
        return Step("running", "distillation", choose=True)
    return Step("paused" if state.search == "paused" else "failed", "search")
