"""``kdnas corpus``: tokenise text for a teacher, and show what came of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kdnas.cli.options import common

if TYPE_CHECKING:
    from kdnas.corpus.tokenized import CorpusProgress, TokenizedCorpus

app = typer.Typer(help="Tokenise text for a teacher, and show a corpus.", no_args_is_help=True)


@app.command()
def build(
    corpus: common.Corpus = None,
    teacher: common.Teacher = None,
    text_column: common.TextColumn = None,
    language_column: common.LanguageColumn = None,
    language_per_file: Annotated[
        bool, typer.Option("--language-per-file", help="A file's name says its language.")
    ] = False,
    max_length: common.MaxLength = None,
    preset: common.Preset = None,
    as_json: common.Json = False,
) -> None:
    """Tokenise a corpus for a teacher; what was tokenised before is taken up again."""
    from api.inputs.preparation import pin
    from kdnas.cli.options.inputs import gather, nested
    from kdnas.cli.screens.console import say
    from kdnas.settings import Settings
    from kdnas.specs.parts import CorpusSpec, TeacherSpec
    from kdnas.store import Store

    settings = Settings.from_environment()
    values = {
        "teacher.ref": teacher,
        "corpus.source": corpus,
        "corpus.text_column": text_column,
        "corpus.language_column": language_column,
        "corpus.language_per_file": language_per_file or None,
        "corpus.max_length": max_length,
    }
    inputs = gather("search", nested(values), settings, preset=preset)
    for line in inputs.lines(("teacher", "corpus")):
        say(line)
    spec = CorpusSpec.read(inputs.data["corpus"], "corpus")
    named = TeacherSpec.read(inputs.data.get("teacher", {}), "teacher")
    with corpus_bar() as progress:
        built = pin(named, spec, Store.from_settings(settings), progress).corpus
    for warning in built.meta["warnings"]:
        typer.echo(f"warning: {warning}", err=True)
    _print(built, as_json)


@app.command()
def show(
    fingerprint: Annotated[str, typer.Argument(help="As printed by kdnas corpus build.")],
    as_json: common.Json = False,
) -> None:
    """Show what a tokenised corpus holds."""
    from kdnas.corpus.tokenized import KIND, TokenizedCorpus
    from kdnas.settings import Settings
    from kdnas.store import Store

    store = Store.from_settings(Settings.from_environment())
    _print(TokenizedCorpus.open(store.fetch(KIND, fingerprint)), as_json)


@contextmanager
def corpus_bar() -> Iterator[Callable[[CorpusProgress], None]]:
    """A bar on stderr with rate and remaining time; at the end one line that stays."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("reading", total=None)

        def tell(progress: CorpusProgress) -> None:
            samples, tokens = progress.num_samples, progress.num_tokens
            if progress.stage == "reused":
                bar.console.print(f"tokenised before: taking up {samples} samples, nothing to do")
            elif progress.stage == "finished":
                bar.console.print(f"tokenised {samples} samples in {progress.seconds:.1f} s")
            else:
                rate = tokens / max(progress.seconds, 1e-9)
                bar.update(
                    task,
                    completed=progress.bytes_read,
                    total=progress.bytes_total,
                    description=f"tokenising: {samples} samples, {rate / 1e3:.0f}k tokens/s",
                )

        yield tell


def _near_twins(meta: dict[str, Any]) -> str:
    moved = f"{meta['num_near_twins']} drawn to be held out went to training"
    kept = meta["num_near_twins_held_out"]
    return f"{moved}, {kept} are held out for want of others" if kept else moved


def _print(corpus: TokenizedCorpus, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(corpus.meta, ensure_ascii=False))
        return
    meta, lengths = corpus.meta, corpus.lengths
    languages = ", ".join(f"{name} {count}" for name, count in meta["languages"].items())
    rows = {
        "fingerprint": corpus.fingerprint,
        "source": ", ".join(meta["spec"]["source"]),
        "samples": f"{corpus.num_sequences}, {meta['num_held_out']} of them held out",
        "near twins": _near_twins(meta),
        "tokens": f"{corpus.num_tokens}, {lengths.mean():.1f} a sample, at most {lengths.max()}",
        "dropped": f"{meta['num_duplicates']} duplicates, {meta['num_short']} too short",
        "cut": f"{meta['num_cut']} samples at {meta['max_length']} tokens",
        "languages": languages,
        "folder": str(corpus.folder),
    }
    for name, value in rows.items():
        typer.echo(f"{name:<12} {value}")
