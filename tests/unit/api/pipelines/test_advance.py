"""What comes next in a pipeline, whatever its parts are doing."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.pipelines.advance import OPEN, MemberState, PipelineState, Step, next_step
from kdnas.records import SearchStatus

ANY = st.sampled_from(get_args(SearchStatus))
MEMBERS = st.lists(
    st.builds(
        MemberState,
        st.none() | ANY,
        st.lists(ANY, max_size=3).map(tuple),
        st.booleans(),
        st.booleans(),
        st.lists(ANY, max_size=2).map(tuple),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
).map(tuple)
STATES = st.builds(PipelineState, ANY, st.none() | ANY, st.none()) | st.builds(
    PipelineState, ANY, st.just("succeeded"), MEMBERS
)


def after(state: PipelineState, step: Step) -> PipelineState:
    """The state once a step is done."""
    members = state.members
    if step.choose:
        members = (MemberState(None), MemberState("queued"))
    elif members is not None:
        members = tuple(
            replace(
                member,
                evaluations=("queued",) if i in step.evaluate else member.evaluations,
                task_distillations=("queued",) if i in step.teach else member.task_distillations,
            )
            for i, member in enumerate(members)
        )
    return PipelineState(step.status, state.search, members)


@given(STATES)
def test_nothing_is_asked_for_twice(state: PipelineState) -> None:
    step = next_step(state)
    if step is None:
        return
    now = after(state, step)
    again = next_step(now)
    if step.choose:  # the teacher's evaluations need nothing but the choice
        assert again is not None
        assert again.evaluate == (0,)
        assert not again.choose
        now = after(now, again)
        again = next_step(now)
    if again is not None:
        assert again == replace(step, choose=False, evaluate=(), teach=()) or step.choose
        assert not again.choose
        assert again.evaluate == again.teach == ()


@given(STATES)
def test_what_waits_or_works_keeps_a_pipeline_open(state: PipelineState) -> None:
    step = next_step(state)
    if step is None:
        assert state.status in {"cancelled", "failed", "succeeded"} or (
            state.status == "paused" and not (state.at_work or state.is_over)
        )
    elif state.at_work:
        assert step.status in {"queued", "running"}
    elif step.status in OPEN:
        parts = [state.search] if state.members is None else []
        for member in state.members or ():
            parts += [member.distillation, *member.evaluations, *member.task_distillations]
        assert step.choose or step.evaluate or step.teach or "paused" in parts


@given(STATES)
def test_failures_are_told_and_successes_are_whole(state: PipelineState) -> None:
    step = next_step(state)
    if step is None or step.status not in {"failed", "succeeded"} or state.members is None:
        return
    made = [m.distillation for m in state.members if m.distillation is not None]
    # Undistilled students are there to be compared with: alone they are no answer.
    students = [m.distillation for m in state.members if m.distillation and not m.undistilled]
    scored = [one for member in state.members for one in member.evaluations]
    taught = [one for member in state.members for one in member.task_distillations]
    assert (step.status == "failed") == (
        "failed" in [*made, *scored, *taught]
        or "succeeded" not in students
        or "succeeded" not in scored
    )
    assert (step.stage == "done") == (step.status == "succeeded")


TEACHER = MemberState(None, ("succeeded",))
TAUGHT = MemberState(
    "succeeded", ("succeeded",), is_taught=True, task_distillations=("succeeded", "cancelled")
)
WAITING = replace(TAUGHT, task_distillations=(), waits=True)
OPEN_ONE: tuple[SearchStatus, ...] = ("succeeded", "queued")
RESTING: tuple[SearchStatus, ...] = ("succeeded", "paused")
FAILED: tuple[SearchStatus, ...] = ("succeeded", "failed")


@pytest.mark.parametrize(
    ("state", "step"),
    [
        (PipelineState("queued", "queued"), Step("queued", "search")),
        (PipelineState("queued", "running"), Step("running", "search")),
        (PipelineState("running", "paused"), Step("paused", "search")),
        (PipelineState("paused", "paused"), None),
        (PipelineState("paused", "running"), Step("running", "search")),
        (PipelineState("paused", "cancelled"), Step("failed", "search")),
        (PipelineState("paused", "succeeded"), None),  # nothing is chosen yet
        (  # what rested was cancelled
            PipelineState(
                "paused",
                "succeeded",
                (TEACHER, MemberState("succeeded", ("succeeded", "cancelled"))),
            ),
            Step("succeeded", "done"),
        ),
        (  # its scores are to come
            PipelineState("paused", "succeeded", (TEACHER, MemberState("succeeded"))),
            None,
        ),
        (PipelineState("running", "failed"), Step("failed", "search")),
        (PipelineState("running", None), Step("failed", "search")),
        (PipelineState("running", "succeeded"), Step("running", "distillation", choose=True)),
        (PipelineState("cancelled", "succeeded"), None),
        (
            PipelineState("running", "succeeded", (TEACHER, MemberState("running"))),
            Step("running", "distillation"),
        ),
        (  # a failed student keeps nobody else from his scores
            PipelineState(
                "running", "succeeded", (MemberState("failed"), MemberState("succeeded"), TEACHER)
            ),
            Step("running", "evaluation", evaluate=(1,)),
        ),
        (
            PipelineState(
                "running",
                "succeeded",
                (MemberState("failed"), MemberState("succeeded", ("failed",))),
            ),
            Step("failed", "distillation"),
        ),
        (
            PipelineState(
                "running",
                "succeeded",
                (MemberState("cancelled"), MemberState("succeeded", ("succeeded", "cancelled"))),
            ),
            Step("succeeded", "done"),
        ),
        (
            PipelineState("running", "succeeded", (MemberState("cancelled"), TEACHER)),
            Step("failed", "distillation"),
        ),
        (  # a student is there: both at once
            PipelineState(
                "running", "succeeded", (TEACHER, MemberState("succeeded", (), is_taught=True))
            ),
            Step("running", "evaluation", evaluate=(1,), teach=(1,)),
        ),
        (  # who is scored is not done before it is taught
            PipelineState("running", "succeeded", (replace(TAUGHT, task_distillations=()),)),
            Step("running", "evaluation", teach=(0,)),
        ),
        (
            PipelineState("running", "succeeded", (replace(TAUGHT, task_distillations=OPEN_ONE),)),
            Step("running", "evaluation"),
        ),
        (
            PipelineState("running", "succeeded", (replace(TAUGHT, task_distillations=RESTING),)),
            Step("paused", "evaluation"),
        ),
        (
            PipelineState("running", "succeeded", (replace(TAUGHT, task_distillations=FAILED),)),
            Step("failed", "evaluation"),
        ),
        (  # its teacher is still to choose how to learn
            PipelineState("running", "succeeded", (MemberState(None, OPEN_ONE), WAITING)),
            Step("running", "evaluation"),
        ),
        (  # it could not, and is to be told so rather than be replaced by what is published
            PipelineState("running", "succeeded", (MemberState(None, FAILED), WAITING)),
            Step("failed", "evaluation"),
        ),
        (PipelineState("running", "succeeded", (TAUGHT,)), Step("succeeded", "done")),
        (
            PipelineState("paused", "succeeded", (replace(TAUGHT, task_distillations=OPEN_ONE),)),
            Step("running", "evaluation"),
        ),
    ],
)
def test_steps(state: PipelineState, step: Step | None) -> None:
    assert next_step(state) == step


def test_students_as_they_start_alone_are_no_success() -> None:
    start = MemberState("succeeded", ("succeeded",), undistilled=True)
    cancelled = MemberState("cancelled")
    teacher = MemberState(None, ("succeeded",))
    alone = PipelineState("running", "succeeded", (teacher, cancelled, start))
    assert next_step(alone) == Step("failed", "distillation")
    student = MemberState("succeeded", ("succeeded",))
    without = replace(start, distillation="cancelled", evaluations=())
    both = PipelineState("running", "succeeded", (teacher, student, without))
    assert next_step(both) == Step("succeeded", "done")
    failed = replace(start, distillation="failed", evaluations=())
    assert next_step(PipelineState("running", "succeeded", (teacher, student, failed))) == (
        Step("failed", "distillation")
    )
