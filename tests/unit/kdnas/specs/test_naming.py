"""What a job may be called."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdnas.errors import SpecError
from kdnas.specs.naming import LONGEST_NAME, checked_name

NAMES = st.text(
    st.characters(categories=["L", "M", "N"]) | st.sampled_from("._-"),
    min_size=1,
    max_size=LONGEST_NAME // 4,  # some characters are several in the form that is stored
).filter(lambda text: text.strip("."))


@given(NAMES)
def test_letters_and_digits_of_any_script_make_a_name(text: str) -> None:
    name = checked_name(text)
    assert checked_name(name) == name
    assert checked_name(unicodedata.normalize("NFD", text)) == name


@given(st.text(min_size=1), st.characters(exclude_categories=["L", "M", "N"]))
def test_whatever_is_no_letter_or_digit_is_refused_with_its_name(text: str, other: str) -> None:
    if unicodedata.normalize("NFC", other)[0] in "._-" or _is_letter(other):
        return
    with pytest.raises(SpecError) as caught:
        checked_name(text + other)
    assert "give letters and digits of any script" in str(caught.value)
    assert [one.field for one in caught.value.fields] == ["name"]


def _is_letter(character: str) -> bool:
    return all(
        unicodedata.category(one)[0] in "LMN" for one in unicodedata.normalize("NFC", character)
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "a name is not empty"),
        ("..", "is nothing but points"),
        ("a b", "has a space in it"),
        ("a/b", "has the character '/' in it"),
        ("a\n", "has a control character in it"),
        ("a\u202e", "has a control character in it"),
        ("é" * 101, "has 101 characters"),
    ],
)
def test_a_refusal_says_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        checked_name(text)


def test_two_spellings_are_one_name() -> None:
    assert checked_name("Gro\u0308ße-測試-1") == checked_name("Größe-測試-1") == "Größe-測試-1"
