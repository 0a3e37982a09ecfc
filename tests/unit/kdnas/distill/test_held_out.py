"""Held-out readings: the same sequences and the same hidden tokens for every training seed."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from kdnas.architecture import Architecture
from kdnas.corpus.batches import eval_batches
from kdnas.corpus.tokenized import TokenizedCorpus
from kdnas.distill.held_out import HeldOut
from kdnas.distill.setup import CalibrationText, Setup
from kdnas.distill.stages import plan_stages
from kdnas.objectives.registry import build_stages
from kdnas.records import Losses
from kdnas.specs.objective_registry import objective_spec
from kdnas.specs.parts import StudentSpec, TrainingSpec
from kdnas.testing.tiny_lab import TinyLab

ARCHITECTURE = Architecture(2, 2, 24, 48, "gelu")


@pytest.fixture(scope="module")
def lab_with_head(lab: TinyLab) -> TinyLab:
    return lab.with_lm_head()


def read(
    lab: TinyLab, corpus: TokenizedCorpus, objective: str, *specs: TrainingSpec
) -> list[Losses]:
    """Read one untrained student as trainings of these specs would."""
    setup = Setup(
        lab.teacher, CalibrationText(lab.corpus, lab.store), "cpu", "float32", StudentSpec()
    )
    (plan,) = plan_stages(build_stages(objective_spec(objective)), 1)
    student = setup.student(ARCHITECTURE, plan, specs[0])
    with (
        closing(setup.trainer(student, ARCHITECTURE, plan, specs[0])) as trainer,
        setup.teacher_pass([trainer]) as teacher,
    ):
        return [
            replace(HeldOut(setup, corpus, spec).losses(teacher, [trainer])[0], training=0.0)
            for spec in specs
        ]


@pytest.mark.parametrize("objective", ["hs", "od"])
def test_the_seed_of_a_training_does_not_choose_what_it_is_read_on(
    lab_with_head: TinyLab, objective: str
) -> None:
    def spec(**values: Any) -> TrainingSpec:
        return TrainingSpec.model_validate({"steps": 1, "batch_size": 8, "held_out": 12} | values)

    corpus = lab_with_head.corpus
    one, other, more = read(
        lab_with_head, corpus, objective, spec(seed=0), spec(seed=1), spec(seed=0, held_out=16)
    )
    assert one == other
    assert one != more


def test_another_corpus_hides_other_tokens(lab_with_head: TinyLab) -> None:
    corpus = lab_with_head.corpus
    other = TokenizedCorpus.open(corpus.folder)
    other.seed = corpus.seed + 1
    # All held-out sequences are read, so that the hidden tokens alone can differ.
    spec = TrainingSpec(steps=1, held_out=10_000)
    assert read(lab_with_head, corpus, "hs", spec) == read(lab_with_head, other, "hs", spec)
    assert read(lab_with_head, corpus, "od", spec) != read(lab_with_head, other, "od", spec)


@pytest.mark.parametrize(
    "objective",
    ["hs", {"name": "minilmv2", "relation_heads": 4}, "od"],
    ids=["hs", "minilmv2", "od"],
)
@pytest.mark.parametrize("kept_bytes", [2**20, 30_000, 0], ids=["all", "some", "none"])
def test_the_teacher_runs_again_only_where_there_was_no_room(
    lab_with_head: TinyLab, objective: Any, kept_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read is the same to the bit."""
    monkeypatch.setattr("kdnas.distill.held_out.HELD_OUT_BATCH", 4)
    lab, spec = lab_with_head, TrainingSpec(steps=1, held_out=10_000)
    setup = Setup(
        lab.teacher, CalibrationText(lab.corpus, lab.store), "cpu", "float32", StudentSpec()
    )
    (plan,) = plan_stages(build_stages(objective_spec(objective)), 1)
    batches = sum(1 for _ in eval_batches(lab.corpus, 4, spec.held_out))
    held_out, runs = HeldOut(setup, lab.corpus, spec, kept_bytes), []
    # Students of one layer and of two may learn from other layers of the teacher.
    for text in ("2,2,24,48,gelu", "1,2,24,48,gelu", "2,2,24,48,gelu"):
        architecture = Architecture.parse(text)
        student = setup.student(architecture, plan, spec)
        with (
            closing(setup.trainer(student, architecture, plan, spec)) as trainer,
            setup.teacher_pass([trainer]) as teacher,
        ):
            trainer.last_loss = 0.0
            alone = HeldOut(setup, lab.corpus, spec, 0).losses(teacher, [trainer])
            for _ in range(2):
                ran: list[object] = []
                hook = setup.model.register_forward_hook(lambda *_, ran=ran: ran.append(1))
                assert held_out.losses(teacher, [trainer]) == alone
                hook.remove()
                runs.append(len(ran))
    assert runs[0] == batches > 1
    if kept_bytes == 0:
        assert runs == [batches] * 6
    elif kept_bytes == 2**20:
        assert [runs[1], *runs[3:]] == [0] * 4
    else:
        assert 0 < runs[5] < batches
