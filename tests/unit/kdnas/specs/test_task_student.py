"""What a request calls its student."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdnas.architecture import Architecture
from kdnas.errors import SpecError
from kdnas.specs.task_student import (
    LayersOfTeacher,
    SequenceStudent,
    StudentChoice,
    StudentFolder,
    StudentOfSpace,
    parse_student,
)


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("first-layers:4", LayersOfTeacher(None, 4)),
        ("layers:1,3,5", LayersOfTeacher((1, 3, 5), 3)),
        ("layers:2", LayersOfTeacher((2,), 1)),
        ("bilstm", SequenceStudent("bilstm")),
        ("gated-cnn", SequenceStudent("gated-cnn")),
        ("4,12,576,768,gelu", StudentOfSpace(Architecture(4, 12, 576, 768, "gelu"))),
        ("./student", StudentFolder("./student")),
        ("a,b,c,d,e/f", StudentFolder("a,b,c,d,e/f")),
        ("owner/name", StudentFolder("owner/name")),
        ("minilm", StudentFolder("minilm")),
    ],
)
def test_a_name_is_read(text: str, choice: StudentChoice) -> None:
    assert parse_student(text) == choice
    assert parse_student(str(choice)) == choice


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("first-layers:", "write it as first-layers:4"),
        ("first-layers:0", "write it as first-layers:4"),
        (f"first-layers:{10**18}", "asks for layer 10{18}; an encoder has at most 1000"),
        ("layers:1,1001", "asks for layer 1001; an encoder has at most 1000"),
        ("first-layers:1,2", "write it as first-layers:4"),
        ("first-layers:-1", "write it as first-layers:4"),
        ("layers:", "write it as layers:1,3,5"),
        ("layers:1,,3", "write it as layers:1,3,5"),
        ("layers:1.5", "write it as layers:1,3,5"),
        ("layers:3,1", "each layer once and in rising order"),
        ("layers:1,1", "each layer once and in rising order"),
        ("4,12,577,768,gelu", "577"),
        ("2,12,384", "is no architecture, which has 5 parts"),
        ("4,12,576,768,gelu,", "is no architecture, which has 5 parts"),
        ("bi-lstm", "did you mean 'bilstm'"),
        ("gated_cnn", "did you mean 'gated-cnn'"),
        ("first-layer:3", "did you mean 'first-layers:3'"),
        ("layers-3", "did you mean 'layers:3'.* ./layers-3"),
        ("4,12,576,768,softplus", "softplus"),
    ],
)
def test_what_begins_like_one_and_is_none_is_refused(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said) as error:
        parse_student(text)
    assert repr(text) in str(error.value)


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    for prefix in ("", "layers:", "first-layers:"):
        with suppress(SpecError):
            parse_student(prefix + text)


def test_layers_are_checked_against_the_teacher() -> None:
    assert LayersOfTeacher(None, 3).of(6, "t") == (1, 2, 3)
    assert LayersOfTeacher((2, 6), 2).of(6, "t") == (2, 6)
    with pytest.raises(SpecError, match=r"first-layers:9 asks for 9 layers of .* has 6;"):
        LayersOfTeacher(None, 9).of(6, "t")
    with pytest.raises(SpecError, match=r"layers:2,7 asks for layer 7 of .* at most 6"):
        LayersOfTeacher((2, 7), 2).of(6, "t")
