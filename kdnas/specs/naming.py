"""What a job may be called: the one rule for the API, its forms and the command line."""

from __future__ import annotations

import unicodedata
from typing import Annotated, Any, Final

from pydantic import AfterValidator, WithJsonSchema

from kdnas.errors import SpecError
from kdnas.specs.wording import NAME_PATTERN, NAME_WORDS, shown

LONGEST_NAME: Final = 100
"""Characters of a name."""


def checked_name(text: str) -> str:
    """Return a name in the form in which it is stored: each spelling of é is one name.

    Letters, marks and digits of any script, points, lines and underscores: what can stand in a
    URL, in the name of a file and on a command line, and looks like what it is.

    Raises:
        SpecError: says which character is none of a name, or what else is wrong.
    """
    name = unicodedata.normalize("NFC", text)
    foreign = next((one for one in name if not _fits(one)), None)
    if foreign is not None:
        reason = f"name {shown(text)} has {_told(foreign)} in it"
    elif len(name) > LONGEST_NAME:
        reason = f"name {shown(text)} has {len(name)} characters"
    elif not name.strip("."):
        reason = f"name {shown(text)} is nothing but points" if name else "a name is not empty"
    else:
        return name
    raise SpecError(f"{reason}; give {NAME_WORDS}, at most {LONGEST_NAME} characters", field="name")


def _fits(character: str) -> bool:
    return character in "._-" or unicodedata.category(character)[0] in "LMN"


def _told(character: str) -> str:
    if character == " ":
        return "a space"
    return f"the character {character!r}" if character.isprintable() else "a control character"


def _valid(text: str) -> str:
    try:
        return checked_name(text)
    except SpecError as error:
        raise ValueError(str(error)) from None


_SCHEMA: Final[dict[str, Any]] = {
    "type": "string",
    "minLength": 1,
    "maxLength": LONGEST_NAME,
    "pattern": NAME_PATTERN,
}

Name = Annotated[str, AfterValidator(_valid), WithJsonSchema(_SCHEMA)]
"""The name of a job, in a request."""
