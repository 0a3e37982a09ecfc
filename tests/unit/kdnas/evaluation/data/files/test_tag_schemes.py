"""Tags of spans in whatever scheme, and the same spans in IOB2."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import BILOU, IOBES, Entities

from kdnas.evaluation.data.files.tag_schemes import is_span_scheme, scheme_of

TYPES = st.sampled_from(["PER", "LOC"])


def to_iob2(tags: list[str]) -> tuple[str, ...]:
    """Tags of a file that holds nothing else."""
    scheme = scheme_of(tags)
    return tuple(tags) if scheme is None else scheme.to_iob2(tags)


@pytest.mark.parametrize(
    ("tags", "iob2"),
    [
        ("I-PER I-PER O I-LOC", "B-PER I-PER O B-LOC"),  # IOB1
        ("I-PER B-PER I-LOC", "B-PER B-PER B-LOC"),  # IOB1, neighbours
        ("B-PER I-PER O B-LOC", "B-PER I-PER O B-LOC"),  # IOB2
        ("S-PER B-LOC E-LOC O", "B-PER B-LOC I-LOC O"),  # IOBES
        ("U-PER U-PER B-LOC I-LOC L-LOC", "B-PER B-PER B-LOC I-LOC I-LOC"),  # BILOU
        ("B-creative-work I-creative-work", "B-creative-work I-creative-work"),
        ("NN VB", "NN VB"),
    ],
)
def test_schemes_become_iob2(tags: str, iob2: str) -> None:
    assert to_iob2(tags.split()) == tuple(iob2.split())


@pytest.mark.parametrize(
    ("tags", "name", "iob2"),
    [
        ("PER PER O PER LOC", "IO", "B-PER I-PER O B-PER B-LOC"),
        ("B_PER I_PER O S_LOC", "IOBES", "B-PER I-PER O B-LOC"),
        ("PER-B PER-I O LOC-B", "IOB", "B-PER I-PER O B-LOC"),
        ("b-per i-per o", "IOB", "B-per I-per O"),
        ("B-PER M-PER E-PER S-LOC", "BMES", "B-PER I-PER I-PER B-LOC"),
        ("W-PER W-PER B-LOC M-LOC E-LOC O", "marks B, E, M, W", "B-PER B-PER B-LOC I-LOC I-LOC O"),
        ("O O", "IOB", "O O"),
        ("B I O B", "IOB", "B-SPAN I-SPAN O B-SPAN"),
        ("S O B E", "IOBES", "B-SPAN O B-SPAN I-SPAN"),
    ],
)
def test_a_file_says_which_scheme_it_has(tags: str, name: str, iob2: str) -> None:
    scheme = scheme_of(tags.split())
    assert scheme is not None
    assert scheme.name == name
    assert scheme.to_iob2(tags.split()) == tuple(iob2.split())


@pytest.mark.parametrize("tags", ["NN VB DT", "O PER B-LOC", "B-PER PER", "O PER-B LOC"])
def test_what_is_no_scheme_is_none(tags: str) -> None:
    assert scheme_of(tags.split()) is None


def test_words_are_no_types() -> None:
    assert scheme_of(["O", *(f"word{i}" for i in range(101))]) is None


@given(st.lists(st.one_of(st.just("O"), st.builds("{}-{}".format, st.sampled_from("BI"), TYPES))))
def test_iob_keeps_its_spans(tags: list[str]) -> None:
    converted = list(to_iob2(tags))
    assert get_entities(converted) == get_entities(tags)
    assert to_iob2(converted) == tuple(converted)
    for before, tag in zip(["O", *converted], converted, strict=False):
        assert not tag.startswith("I-") or before[2:] == tag[2:]


@given(st.lists(st.tuples(st.integers(0, 3), TYPES), max_size=8), st.booleans())
def test_iobes_and_bilou_keep_their_spans(pieces: list[tuple[int, str]], bilou: bool) -> None:
    single, end = ("U", "L") if bilou else ("S", "E")
    tags: list[str] = []
    for length, kind in pieces:
        if length == 0:
            tags.append("O")
        elif length == 1:
            tags.append(f"{single}-{kind}")
        else:
            tags += [f"B-{kind}", *([f"I-{kind}"] * (length - 2)), f"{end}-{kind}"]
    spans = Entities([tags], BILOU if bilou else IOBES).entities[0] if tags else []
    wanted = [(e.tag, e.start, e.end - 1) for e in spans]
    assert get_entities(list(to_iob2(tags))) == wanted


@given(st.lists(st.sampled_from(["O", "PER", "LOC"])))
def test_tags_without_marks_are_the_spans_of_neighbours(tags: list[str]) -> None:
    scheme = scheme_of({"O", "PER", "LOC"})
    assert scheme is not None
    converted = scheme.to_iob2(tags)
    assert [tag[2:] or "O" for tag in converted] == tags
    for before, tag in zip(["O", *tags], converted, strict=False):
        assert tag.startswith("I-") == (tag != "O" and before == tag[2:])


def test_tags_of_words_are_no_scheme_of_spans() -> None:
    assert is_span_scheme(["O", "B-PER", "I-PER", "S-LOC"])
    assert not is_span_scheme(["NN", "O"])
