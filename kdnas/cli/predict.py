"""``kdnas predict``: a fine-tuned model on a line of text, or on a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from kdnas.cli.options import common
from kdnas.cli.options.outputs import check_file
from kdnas.cli.screens.console import say
from kdnas.errors import RequestError

if TYPE_CHECKING:
    from kdnas.evaluation.prediction.predictor import Answer


def predict(
    model: Annotated[
        str,
        typer.Argument(
            help="Folder of `kdnas evaluate --save-models`, or any model with a head; hub ids too."
        ),
    ],
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="A text, or a question.")
    ] = None,
    pair: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Second text, or context of a question.")
    ] = None,
    input_: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="FILE",
            help="Instead of TEXT: .txt (a text a line), .csv, .tsv or .jsonl (columns), .conll "
            "(a word a line), .json (SQuAD's); - is standard input.",
        ),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format", help="txt, csv, tsv, jsonl, conll or squad.  [default: by the file's end]"
        ),
    ] = None,
    text_column: Annotated[
        str | None, typer.Option(help="Column of the text.  [default: text, sentence, question …]")
    ] = None,
    pair_column: Annotated[
        str | None, typer.Option(help="Column of the second text.  [default: pair, context …]")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="Which model, of a folder with several tasks.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Examples of a forward pass.")] = 64,
    device: common.Device = None,
    threads: common.Threads = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="File for the answers: .jsonl, .json, .csv or .tsv with what was asked beside "
            "them; .txt as they are printed.",
            dir_okay=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer with a JSON object a line.")] = (
        False
    ),
) -> None:
    """Answer with a fine-tuned model: labels with probabilities, numbers, tags, or spans of text.

    Answers come in the order of what was asked, while the file is still being read.
    """
    from kdnas.evaluation.prediction.inputs import Source, format_of, one_example, read_examples
    from kdnas.evaluation.prediction.predictor import Predictor, find_saved
    from kdnas.evaluation.prediction.writing import writer_for

    if (text is None) == (input_ is None):
        raise RequestError("give a TEXT, or a file with --input, and not both")
    # os.path.isfile takes texts that are too long for a path; Path.is_file raises.
    if text is not None and Path(text).suffix and os.path.isfile(text):  # noqa: PTH113
        raise RequestError(f"{text!r} is a file; give it with --input")
    if input_ is not None and pair is not None:
        raise RequestError("--pair goes with TEXT; name the column of a file with --pair-column")
    if input_ not in (None, "-") and not Path(str(input_)).is_file():
        raise RequestError(f"there is no file {str(input_)!r}; check the path")
    check_file(output)
    if output is not None:
        writer_for(output)
    predictor = Predictor(find_saved(model, task), device or "auto", threads, batch_size)
    with _opened(input_) as stream:
        if input_ is None:
            examples = iter([one_example(predictor.kind, text or "", pair)])
        else:
            laid_out = format_of(input_, predictor.kind, format_)
            source = Source(predictor.kind, laid_out, text_column, pair_column)
            examples = read_examples(source, stream, input_)
        count = _write(predictor(examples), output, as_json)
    if output is not None:
        say(f"written    {output}  ({count} answers)")


@contextmanager
def _opened(path: str | None) -> Iterator[TextIO]:
    if path is None or path == "-":
        sys.stdin.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        yield sys.stdin
        return
    with Path(path).open(encoding="utf-8-sig", newline="") as stream:
        yield stream


def _write(answers: Iterable[Answer], output: Path | None, as_json: bool) -> int:
    """Write answers as they come; a file appears whole or not at all.

    Returns:
        How many there were.
    """
    from kdnas.evaluation.prediction.writing import write_json_lines, write_lines, writer_for

    if output is None:
        return (write_json_lines if as_json else write_lines)(answers, sys.stdout)
    write = writer_for(output)
    # A file of lines has what would be printed; others say by their end how they are written.
    if as_json and write is write_lines:
        write = write_json_lines
    draft = output.with_name(f".{output.name}.draft")
    with ExitStack() as opened:
        opened.callback(draft.unlink, missing_ok=True)
        with draft.open("w", encoding="utf-8", newline="") as stream:
            count = write(answers, stream)
        draft.replace(output)
    return count
