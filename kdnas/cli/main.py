"""The program ``kdnas``: its commands, and what becomes of errors."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence

import typer

from kdnas.cli import (
    arch,
    benchmark_model,
    coordinator,
    corpus,
    db,
    demo,
    distillations,
    doctor,
    evaluate,
    export,
    full_distill,
    gc,
    jobs,
    latency,
    launch,
    pipelines,
    predict,
    reference,
    schema,
    search,
    searches,
    serve,
    space,
    sweep,
    tabular,
    task_distill,
    task_distillations,
    tokens,
)
from kdnas.cli.options.objective_help import ObjectiveCommand
from kdnas.cli.options.places import with_options
from kdnas.cli.options.usage import UsageError, usage_sentence
from kdnas.errors import (
    KdnasError,
    NotFoundError,
    PluginError,
    RequestError,
    too_long_a_name,
)

EXIT_WORK_FAILED, EXIT_WRONG_REQUEST, EXIT_INTERRUPTED = 1, 2, 130

app = typer.Typer(
    help="Find the student architecture worth distilling, and distil it.",
    epilog="Begin with: kdnas demo, or kdnas search --teacher ./my-bert --corpus ./texts",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
COMMANDS = (
    search.search,
    sweep.sweep,
    full_distill.full_distill,
    task_distill.task_distill,
    launch.launch,
    evaluate.evaluate,
    predict.predict,
    benchmark_model.benchmark_model,
    coordinator.coordinator,
    export.export,
    demo.demo,
    serve.serve,
    doctor.doctor,
    gc.gc,
    arch.arch,
    space.space,
    schema.schema,
    reference.reference,
)
GROUPS = (
    *(jobs, searches, distillations, task_distillations, pipelines),
    *(latency, tabular, corpus, db, tokens),
)
for command in COMMANDS:
    app.command(cls=ObjectiveCommand)(command)
for group in GROUPS:
    app.add_typer(group.app, name=group.__name__.rpartition(".")[2].replace("_", "-"))


@app.command()
def version() -> None:
    """Print the version."""
    from kdnas import ENGINE_VERSION, __version__

    typer.echo(f"kdnas {__version__} (engine {ENGINE_VERSION})")


def error_sentence(error: KdnasError, arguments: Sequence[str]) -> str:
    """Word an error for who uses the command line: with its options and commands.

    Args:
        error: what a command raised.
        arguments: of the command line.
    """
    called = next(iter(arguments), "").replace("-", "_")
    command = next((one for one in COMMANDS if one.__name__ == called), None)
    said = str(error) if command is None else with_options(str(error), command)
    listed_in = error.listed_in if isinstance(error, NotFoundError) else None
    return f"{said}; `kdnas {listed_in} list` shows all" if listed_in else said


def main() -> None:
    """Run the program: 0 done, 1 the work failed, 2 the request was wrong, 130 interrupted."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Threads that spin long at a barrier crawl as soon as the machine has other work, up to twenty
    # times slower; a short spin costs a fifth at most where it has none.
    os.environ.setdefault("GOMP_SPINCOUNT", "5000")
    try:
        code = app(prog_name="kdnas", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except typer.Abort:  # a question was answered with no, or nobody was there to answer
        print("nothing was done", file=sys.stderr)
        sys.exit(EXIT_WORK_FAILED)
    except UsageError as error:
        print(usage_sentence(error, sys.argv[1:]), file=sys.stderr)
        sys.exit(EXIT_WRONG_REQUEST)
    except KdnasError as error:
        if isinstance(error, PluginError):  # whoever wrote the plug-in has to see where
            traceback.print_exception(error.__cause__)
        print(f"error: {error_sentence(error, sys.argv[1:])}", file=sys.stderr)
        wrong = isinstance(error, RequestError)
        sys.exit(EXIT_WRONG_REQUEST if wrong else EXIT_WORK_FAILED)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output went away; nothing is left to tell it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_WORK_FAILED)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            print(f"error: {too_long_a_name(error)}", file=sys.stderr)
            sys.exit(EXIT_WRONG_REQUEST)
        if error.errno in {errno.EACCES, errno.EPERM}:
            print(
                f"error: {error.filename or 'a file'} may not be used by this user "
                f"({error.strerror}); change its permissions, or name another",
                file=sys.stderr,
            )
            sys.exit(EXIT_WORK_FAILED)
        if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EROFS}:
            raise
        print(
            f"error: {error.filename or 'the output or a file'} could not be written "
            f"({error.strerror}); free space where it goes, or set KDNAS_HOME to a folder that can "
            "be written",
            file=sys.stderr,
        )
        sys.exit(EXIT_WORK_FAILED)
