"""What a model's files want done to texts that are embedded, as sentence-transformers does it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kdnas.errors import TeacherError
from kdnas.models.sentence import (
    PROMPT_FILE,
    TEXT_FILE,
    module_kind,
    read_modules,
    read_settings,
)
from kdnas.models.teacher import TeacherHandle

SHORTEST = 3
"""Tokens of a text: one between two special ones."""


@dataclass(frozen=True, slots=True)
class TextForm:
    """How texts come to a model.

    Attributes:
        longest: tokens of a text, special tokens included.
        cuts: whether the model's files say so, and more were wanted.
        lower: in lower case, whatever the tokenizer makes of it.
    """

    longest: int
    cuts: bool = False
    lower: bool = False

    def __call__(self, text: str) -> str:
        """Write a text as the model wants it; how long it is stays for the tokenizer."""
        if not self.lower:
            return text
        from tokenizers.normalizers import Lowercase

        lowered: str = Lowercase().normalize_str(text)
        return lowered

    @property
    def variant(self) -> str:
        """What of it a model's fingerprint does not tell; empty where its files say nothing."""
        cut = f"cut at {self.longest}" if self.cuts else ""
        return " ".join(filter(None, (cut, "lower case" if self.lower else "")))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of scores should know."""
        cut = (f"texts are cut at {self.longest} tokens, as the model's files say",)
        return (cut if self.cuts else ()) + (("texts are put in lower case",) if self.lower else ())


def text_form_of(model: TeacherHandle, wanted: int) -> TextForm:
    """Read how a model wants the texts that it embeds.

    Args:
        model: on this machine.
        wanted: tokens of the longest text; more than the model takes are not used.

    Raises:
        TeacherError: its file cannot be read, or says something else than a length and whether.
    """
    most = min(wanted, model.longest_sequence)
    file = None if model.sentences is None else model.sentences / TEXT_FILE
    if file is None or not file.is_file():
        return TextForm(most)
    settings = read_settings(file)
    longest, lower = settings.get("max_seq_length"), settings.get("do_lower_case", False)
    if longest is not None and (type(longest) is not int or longest < SHORTEST):
        raise TeacherError(
            f"max_seq_length in {file} must be a number of tokens, {SHORTEST} at least, not "
            f"{longest!r}; copy the model again"
        )
    if type(lower) is not bool:
        raise TeacherError(
            f"do_lower_case in {file} must be true or false, not {lower!r}; copy the model again"
        )
    if longest is None or longest >= most:
        return TextForm(most, lower=lower)
    return TextForm(longest, True, lower)


@dataclass(frozen=True, slots=True)
class Prompts:
    """What a model wants to have before texts that are embedded.

    Attributes:
        query: before a query.
        passage: before a passage.
    """

    query: str = ""
    passage: str = ""

    @property
    def variant(self) -> str:
        """What of it the fingerprint of a model does not tell; empty for none."""
        return "" if self == Prompts() else f"prompts {self.query!r} {self.passage!r}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of scores should know."""
        if self == Prompts():
            return ()
        return (f"queries begin with {self.query!r}, passages with {self.passage!r}",)


def prompts_of(folder: Path | None, ref: str) -> Prompts:
    """Read what a model's files want before queries and passages, as sentence-transformers does.

    Args:
        folder: that says how sentences are embedded; None where the model has none.
        ref: how the user named the model.

    Raises:
        TeacherError: the files cannot be read, or leave prompts out of the pooling, which is not
            done here.
    """
    if folder is None or not (folder / PROMPT_FILE).is_file():
        return Prompts()
    known = read_settings(folder / PROMPT_FILE).get("prompts") or {}
    if not isinstance(known, dict) or not all(isinstance(text, str) for text in known.values()):
        raise TeacherError(
            f"prompts in {folder / PROMPT_FILE} must be texts by name, not {known!r}; copy "
            "the model again"
        )
    named = next((known[name] for name in ("document", "passage", "corpus") if name in known), "")
    prompts = Prompts(known.get("query", ""), named)
    poolings = [m for m in read_modules(folder) if module_kind(m) == "Pooling"]
    for file in (folder / pooling["path"] / "config.json" for pooling in poolings):
        whole = not file.is_file() or read_settings(file).get("include_prompt", True)
        if prompts != Prompts() and not whole:
            raise TeacherError(
                f"model {ref!r} leaves its prompts out of the pooling (include_prompt), which is "
                "not supported; give a model that does not"
            )
    return prompts
