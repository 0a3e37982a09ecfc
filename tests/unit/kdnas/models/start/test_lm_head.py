"""A student's masked-LM head, begun where it says what its teacher's says."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import Tensor

from kdnas.architecture import Architecture
from kdnas.models.families import FAMILIES
from kdnas.models.lm_head import MaskedLMHead
from kdnas.models.start.lm_head import start_lm_head
from kdnas.testing.start_lab import StartLab, make_start_lab

STUDENTS = (
    "1,2,24,48,relu",
    "2,6,36,96,gelu",
    "2,4,48,40,silu",
    "4,8,96,64,gelu",
    "3,4,48,96,gelu",  # deeper than the tiny teachers, and otherwise like them
)


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> StartLab:
    return make_start_lab(tmp_path_factory.mktemp(request.param), request.param, tokens=2000)


def loud_head(lab: StartLab, *, tied: bool = True, **settings: bool) -> MaskedLMHead:
    """A head that says something: of random weights scores hardly differ."""
    config = deepcopy(lab.handle.config)
    config.update(settings)
    head = MaskedLMHead.of_config(config, seed=1, tied=tied)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, value in head.named_parameters():
            if name not in head.absent:
                value.add_(0.3 * torch.randn(value.shape, generator=generator))
    return head


def distance(own: Tensor, teacher: Tensor) -> float:
    """KL of the teacher's distributions from a student's, over that of their mean."""
    log_own, log_teacher = own.log_softmax(1), teacher.log_softmax(1)
    expected = log_teacher.exp()
    kl = (expected * (log_teacher - log_own)).sum(1).mean()
    useless = (expected * (log_teacher - expected.mean(0).log())).sum(1).mean()
    return float(kl / useless)


def started(
    lab: StartLab, teacher: MaskedLMHead, architecture: Architecture
) -> tuple[MaskedLMHead, Tensor, Tensor, Tensor]:
    """A student's head with its start, its states and words, and what the teacher says."""
    student = lab.student(architecture)
    states, teacher_states = lab.outputs(student), lab.outputs(lab.model)
    words, teacher_words = (
        lab.family.word_embeddings(model).detach() for model in (student, lab.model)
    )
    head = teacher.for_student(architecture, lab.family, 3, words.shape[1])
    start_lm_head(head, teacher, states, teacher_states, words, teacher_words)
    return head, states, words, teacher(teacher_states, teacher_words).detach()


@pytest.mark.parametrize("architecture", STUDENTS)
def test_it_says_much_of_what_the_teachers_says(lab: StartLab, architecture: str) -> None:
    teacher, chosen = loud_head(lab), Architecture.parse(architecture)
    head, states, words, said = started(lab, teacher, chosen)
    fresh = teacher.for_student(chosen, lab.family, 3, words.shape[1])
    with torch.no_grad():
        fresh.bias.copy_(teacher.bias)
        fresh.dense_weight.add_(torch.eye(*fresh.dense_weight.shape))
        assert all(value.isfinite().all() for value in head.state_dict().values())
        near, far = distance(head(states, words), said), distance(fresh(states, words), said)
    assert near < 1.0
    assert near < 0.9 * far


def test_a_student_of_the_teachers_architecture_says_the_same(lab: StartLab) -> None:
    head, states, words, said = started(lab, loud_head(lab), lab.own)
    with torch.no_grad():
        assert distance(head(states, words), said) < 1e-5


def test_a_decoder_of_its_own_is_what_is_learned_from(lab: StartLab) -> None:
    teacher = loud_head(lab, tied=False)
    head, states, words, said = started(lab, teacher, lab.own)
    assert head.decoder is None
    with torch.no_grad():
        assert distance(head(states, words), said) < 1.0


def test_what_a_head_lacks_stays_zero(lab: StartLab) -> None:
    optional = lab.family.lm_head.optional
    for settings in ({}, dict.fromkeys(optional.values(), False)):
        teacher = loud_head(lab, **settings)
        assert teacher.absent >= {name for name, key in optional.items() if key in settings}
        head, *_ = started(lab, teacher, Architecture.parse(STUDENTS[0]))
        for name in head.absent:
            assert not head.get_parameter(name).any()


def test_a_teacher_is_asked_once_for_all_students(lab: StartLab) -> None:
    teacher, states, asked = loud_head(lab), lab.outputs(lab.model), list[int]()
    words = lab.family.word_embeddings(lab.model).detach()
    teacher.register_forward_hook(lambda *_: asked.append(1))
    heads = []
    for teacher_states in (states, states, states.flip(0)):
        student = lab.student(STUDENTS[0])
        own = lab.family.word_embeddings(student).detach()
        head = teacher.for_student(Architecture.parse(STUDENTS[0]), lab.family, 3, own.shape[1])
        start_lm_head(head, teacher, lab.outputs(student), teacher_states, own, words)
        heads.append(head.state_dict())
    assert len(asked) == 2  # the last one was another text
    assert all(torch.equal(value, heads[1][name]) for name, value in heads[0].items())
    assert not torch.equal(heads[0]["bias"], heads[2]["bias"])
