"""``kdnas corpus``: tokenise text for a teacher, and show what came of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kdnas.cli.options import common
from kdnas.cli.options.inputs import gather
from kdnas.cli.options.places import At, request_of
from kdnas.cli.screens.console import say_each
from kdnas.cli.screens.preparing import corpus_bar
from kdnas.cli.tables.answers import fact_lines, print_lines
from kdnas.settings import Settings

if TYPE_CHECKING:
    from kdnas.corpus.tokenized import TokenizedCorpus

app = typer.Typer(help="Tokenise text for a teacher, and show a corpus.", no_args_is_help=True)


@app.command()
def build(
    corpus: common.Corpus = None,
    teacher: common.Teacher = None,
    text_column: common.TextColumn = None,
    language_column: common.LanguageColumn = None,
    language_per_file: Annotated[
        bool,
        typer.Option("--language-per-file", help="A file's name says its language."),
        At("corpus.language_per_file"),
    ] = False,
    max_length: common.MaxLength = None,
    preset: common.Preset = None,
    as_json: common.Json = False,
) -> None:
    """Tokenise a corpus for a teacher; what was tokenised before is taken up again."""
    from api.inputs.preparation import pin
    from kdnas.specs.parts import CorpusSpec, TeacherSpec
    from kdnas.store import Store

    request, settings = request_of(build, locals()), Settings.from_environment()
    inputs = gather("search", request, settings, preset=preset)
    say_each(inputs.lines(("teacher", "corpus")))
    spec = CorpusSpec.read(inputs.data["corpus"], "corpus")
    named = TeacherSpec.read(inputs.data.get("teacher", {}), "teacher")
    with corpus_bar() as progress:
        built = pin(named, spec, Store.from_settings(settings), progress).corpus
    say_each(f"warning: {warning}" for warning in built.meta["warnings"])
    _print(built, as_json)


@app.command()
def show(
    fingerprint: Annotated[str, typer.Argument(help="As printed by kdnas corpus build.")],
    as_json: common.Json = False,
) -> None:
    """Show what a tokenised corpus holds."""
    from kdnas.corpus.tokenized import KIND, TokenizedCorpus
    from kdnas.store import Store

    store = Store.from_settings(Settings.from_environment())
    _print(TokenizedCorpus.open(store.fetch(KIND, fingerprint)), as_json)


def _near_twins(meta: dict[str, Any]) -> str:
    moved = f"{meta['num_near_twins']} drawn to be held out went to training"
    kept = meta["num_near_twins_held_out"]
    return f"{moved}, {kept} are held out for want of others" if kept else moved


def _print(corpus: TokenizedCorpus, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(corpus.meta, ensure_ascii=False))
        return
    meta, lengths = corpus.meta, corpus.lengths
    facts = {
        "fingerprint": corpus.fingerprint,
        "source": ", ".join(meta["spec"]["source"]),
        "samples": f"{corpus.num_sequences}, {meta['num_held_out']} of them held out",
        "near twins": _near_twins(meta),
        "tokens": f"{corpus.num_tokens}, {lengths.mean():.1f} a sample, at most {lengths.max()}",
        "dropped": f"{meta['num_duplicates']} duplicates, {meta['num_short']} too short",
        "cut": f"{meta['num_cut']} samples at {meta['max_length']} tokens",
        "languages": ", ".join(f"{name} {count}" for name, count in meta["languages"].items()),
        "folder": str(corpus.folder),
    }
    print_lines(fact_lines(facts))
