from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdnas.architecture import ACTIVATIONS, Architecture
from kdnas.errors import ArchitectureError

counts = st.integers(1, 10_000)


@st.composite
def architectures(draw: st.DrawFn) -> Architecture:
    heads = draw(st.integers(1, 64))
    hidden = heads * draw(st.integers(1, 200))
    return Architecture(
        draw(st.integers(1, 1000)), heads, hidden, draw(counts), draw(st.sampled_from(ACTIVATIONS))
    )


@given(architectures())
def test_text_round_trip(architecture: Architecture) -> None:
    assert Architecture.parse(str(architecture)) == architecture
    assert architecture.head_size * architecture.heads == architecture.hidden


@pytest.mark.parametrize(
    "text", ["4,12,576,768,gelu", " 4 , 12,576, 768 , GELU ", "[4, 12, 576, 768, 'gelu']"]
)
def test_spellings_of_one_architecture(text: str) -> None:
    assert Architecture.parse(text) == Architecture(4, 12, 576, 768, "gelu")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["1 parts instead of 5", "4,12,576,768,gelu"]),
        ("4,12,576,768", ["'4,12,576,768'", "4 parts"]),
        ("4,12,576,768,gelu,1", ["6 parts"]),
        ("4,twelve,576,768,gelu", ["heads", "'twelve'"]),
        ("4,12,576.5,768,gelu", ["hidden", "'576.5'"]),
        ("-4,12,576,768,gelu", ["layers", "'-4'"]),
        ("4,12,576,٣,gelu", ["intermediate", "'٣'"]),
        ("4,12,,768,gelu", ["hidden", "''"]),
        ("0,12,576,768,gelu", ["layers must be from 1 to 1000, not 0"]),
        ("4,12,576,0,gelu", ["intermediate must be from 1 to 262144, not 0"]),
        ("4,5,288,768,gelu", ["num_heads (5)", "hidden (288)", "choose one of 1, 2, 3, 4, 6"]),
        ("4,12,576,768,gleu", ["'gleu'", "did you mean 'gelu'"]),
        ("4,12,576,768,tanh", ["'tanh'", "gelu, relu, silu"]),
        ("999999999,12,576,768,gelu", ["layers must be from 1 to 1000, not 999999999"]),
        (f"4,12,576,{'9' * 5000},gelu", ["intermediate", "whole number"]),
    ],
)
def test_a_wrong_text_is_refused_with_its_value(text: str, words: list[str]) -> None:
    with pytest.raises(ArchitectureError) as caught:
        Architecture.parse(text)
    for word in words:
        assert word in str(caught.value)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ArchitectureError):
        assert Architecture.parse(text)
