"""What is shown before the work: where inputs come from, text that is read, what is prepared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeVar

from kdnas.cli.screens.console import Bar, bar, say, say_each

if TYPE_CHECKING:
    from api.distillations.prepare import PreparedDistillation
    from api.evaluations.prepare import PreparedEvaluation
    from api.searches.run import PreparedSearch
    from api.sweeps.run import PreparedSweep
    from kdnas.corpus.tokenized import CorpusProgress
    from kdnas.settings import Settings
    from kdnas.specs.base import Spec
    from kdnas.specs.evaluation import EvaluationSpec
    from kdnas.specs.objective_base import ObjectiveSpec

Prepared = TypeVar("Prepared", "PreparedSearch", "PreparedSweep", "PreparedDistillation")


def prepare_on_screen(prepare: Callable[..., Prepared], spec: Spec, settings: Settings) -> Prepared:
    """Prepare a search, a sweep or a distillation, and say what was chosen and what may be amiss.

    Args:
        prepare: takes ``spec``, ``settings`` and what is told of the corpus and the objective.
        spec: what is asked for.
        settings: of the environment.
    """
    with corpus_bar() as on_corpus, preparing_bar() as on_preparing:
        prepared = prepare(spec, settings, on_corpus, on_preparing)
    say_each(chosen_layer_lines(prepared.spec.objective))
    say_each(f"warning: {warning}" for warning in prepared.warnings)
    return prepared


def read_data_on_screen(spec: EvaluationSpec) -> PreparedEvaluation:
    """Read the data of an evaluation and its model."""
    from api.evaluations.prepare import prepare_evaluation

    with bar("reading data", unit="tasks") as shown:
        read: list[str] = []

        def on_task(name: str) -> None:
            shown.at(len(read), note=name)
            read.append(name)

        return prepare_evaluation(spec, on_task)


@contextmanager
def corpus_bar() -> Iterator[Callable[[CorpusProgress], None]]:
    """A bar with rate and remaining time while text is tokenised; at the end a line that stays."""
    with bar("tokenising") as shown:

        def tell(progress: CorpusProgress) -> None:
            samples, seconds = progress.num_samples, progress.seconds
            if progress.stage == "tokenizing":
                rate = progress.num_tokens / max(seconds, 1e-9)
                note = f"{samples} samples, {rate / 1e3:.0f}k tokens/s"
                shown.at(progress.bytes_read, progress.bytes_total, note)
                return
            shown.close()
            say(
                f"tokenised before: taking up {samples} samples, nothing to do"
                if progress.stage == "reused"
                else f"tokenised {samples} samples in {seconds:.1f} s"
            )

        yield tell


@contextmanager
def preparing_bar() -> Iterator[Callable[[str, int, int], None]]:
    """A bar that appears when there is something to prepare: heads to fit, layers to try."""
    shown: dict[str, Bar] = {}
    waits: set[str] = set()
    with ExitStack() as bars:

        def tell(what: str, done: int, total: int) -> None:
            if not total:  # it waits for somebody
                if what not in waits:
                    waits.add(what)
                    say(what)
                return
            if what not in shown:
                say(f"{what}: {total} steps")
                shown[what] = bars.enter_context(bar(what, total, unit="steps"))
            shown[what].at(done, total)

        yield tell


def chosen_layer_lines(objective: ObjectiveSpec) -> Iterator[str]:
    """The table of the trials of teacher layers, if there were any."""
    from kdnas.specs.objective_base import LearnsOneLayer

    if not (isinstance(objective, LearnsOneLayer) and objective.trials):
        return
    yield "teacher layer   relative loss   last hidden state unexplained (the smallest is chosen)"
    for trial in objective.trials:
        mark = "  <- chosen" if trial.teacher_layer == objective.teacher_layer else ""
        yield f"{trial.teacher_layer:13}   {trial.relative:13.4f}   {trial.probe:.4f}{mark}"
