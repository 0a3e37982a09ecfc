from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from kdnas.architecture import Architecture
from kdnas.errors import ArchitectureError
from kdnas.models.families import FAMILIES
from kdnas.models.start.copied import copy_layers, copy_problem, start_problem
from kdnas.models.student import build_student
from kdnas.models.teacher import load_teacher_model, prepare_teacher
from kdnas.testing.tiny_teacher import make_tiny_teacher


@pytest.mark.parametrize("model_type", FAMILIES)
def test_copied_layers_follow_the_uniform_mapping(model_type: str, tmp_path: Path) -> None:
    """Layer i comes from layer ⌈i·L^T/L^S⌉, and the embeddings come whole."""
    folder = make_tiny_teacher(tmp_path, model_type, layers=5)
    handle, family = prepare_teacher(str(folder)), FAMILIES[model_type]
    model = load_teacher_model(handle)
    for layers, sources in ((2, (3, 5)), (3, (2, 4, 5)), (5, (1, 2, 3, 4, 5))):
        student = build_student(handle.config, Architecture(layers, 4, 48, 96))
        copy_layers(student, model, family)
        own, theirs = (family.transformer_layers(m) for m in (student, model))
        for layer, source in zip(own, sources, strict=True):
            wanted = theirs[source - 1].state_dict()
            assert layer.state_dict()
            assert all(torch.equal(v, wanted[name]) for name, v in layer.state_dict().items())
        for part in ("embeddings", "embeddings_project"):
            assert hasattr(student, part) == hasattr(model, part)
            if hasattr(model, part):
                copied, wanted = (m.get_submodule(part).state_dict() for m in (student, model))
                assert wanted.keys() == copied.keys()
                assert all(torch.equal(value, wanted[name]) for name, value in copied.items())
    ids = torch.tensor([[2, 9, 17, 4, 30]])
    with torch.no_grad():  # the last one has all layers
        one, other = (m.eval()(input_ids=ids).last_hidden_state for m in (student, model))
    assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("student", "message"),
    [
        (Architecture(2, 4, 24, 96), "hidden 24 cannot copy layers of a teacher with hidden 48"),
        (Architecture(2, 2, 48, 96), "heads 2 cannot .* heads 4; choose heads 4"),
        (Architecture(2, 4, 48, 96, "relu"), "activation relu cannot .* activation gelu"),
        (Architecture(3, 4, 48, 96), "3 layers cannot copy those of a teacher of 2"),
    ],
)
def test_layers_of_another_size_cannot_be_copied(
    student: Architecture, message: str, tmp_path: Path
) -> None:
    handle = prepare_teacher(str(make_tiny_teacher(tmp_path)))
    assert re.search(message, start_problem("copy", student, handle.shape) or "")
    for init in ("teacher", "warm", "random"):
        assert start_problem(init, student, handle.shape) is None
    with pytest.raises(ArchitectureError, match=message):
        copy_layers(
            build_student(handle.config, student), load_teacher_model(handle), FAMILIES["bert"]
        )


def test_what_no_student_has_is_not_advised() -> None:
    """The teacher's activation is whatever its configuration names."""
    student = asdict(Architecture(2, 4, 48, 96))
    problem = copy_problem(student, student | {"activation": "gelu_new"}, "the start teacher")
    assert problem == (
        "a student with activation gelu cannot copy layers of a teacher with activation gelu_new, "
        "which no student has; choose the start teacher"
    )
