"""The trials of an evaluation's grid: fine-tunings, of which the hopeless end early."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kdnas.evaluation.finetuning.grid import QUARTERS, GridPoint, Trial
from kdnas.evaluation.settings import FinetuneSettings
from workers.carried import Carried
from workers.trials import EndedTrial, Report, TrialWork, run_trials


@dataclass(frozen=True)
class GridWork(TrialWork[GridPoint]):
    """What all trials of an evaluation's grid have in common.

    Attributes:
        carried: model and data.
        settings: all hyper-parameters but those that are tried.
    """

    marks = QUARTERS
    prunes = True
    if_memory_ran_out = "with a smaller `batch_size`"

    carried: Carried
    settings: FinetuneSettings

    def try_point(self, point: GridPoint, report: Report) -> None:
        """Fine-tune with a learning rate and a number of epochs."""
        # It loads torch, which a trial that is known does without.
        from kdnas.evaluation.finetuning.trial import run_trial

        run_trial(
            self.carried.model_here(),
            self.carried.data,
            self.settings,
            point,
            report,
            device=self.device,
            threads=self.threads,
        )


def try_grid(
    work: GridWork,
    known: Sequence[Trial],
    folder: Path,
    on_trial: Callable[[Trial], None],
    should_stop: Callable[[], bool] = lambda: False,
    on_wait: Callable[[str], None] = lambda _: None,
) -> bool:
    """Try the points of a grid that are not known yet; the process is connected to Ray.

    Args:
        work: what is tried.
        known: trials that have ended before, of some of the points; others are compared with them.
        folder: for Ray Tune's files.
        on_trial: is told each trial that ends, in the calling thread; what it raises ends the run.
        should_stop: asked a few times a second; trials that have not ended then are lost.
        on_wait: is told for whom trials wait, if they do, and nothing when it is over.

    Returns:
        Whether all points are known now; False if it was stopped.

    Raises:
        BackendError, KdnasError: see :func:`workers.trials.run_trials`.
    """
    return run_trials(
        work,
        [EndedTrial(trial.point, trial.ending, trial.scores) for trial in known],
        folder,
        lambda ended: on_trial(Trial(ended.point, ended.ending, ended.scores)),
        should_stop=should_stop,
        on_wait=on_wait,
    )
