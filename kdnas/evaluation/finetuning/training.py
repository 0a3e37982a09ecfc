"""The training of a fine-tuning: transformers' Trainer, made quiet, resumable and stoppable."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isfinite
from pathlib import Path
from typing import Any

from safetensors.torch import load_model
from torch import nn
from transformers import (
    EarlyStoppingCallback,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from kdnas.distill.numerics import Device
from kdnas.errors import StoreError, TrainingError
from kdnas.evaluation.finetuning.forward import Collate
from kdnas.evaluation.settings import FinetuneSettings

SAVE_SECONDS = 60.0
"""How much work a kill loses at most; with early stopping, an epoch."""
STATE_FILE, WEIGHTS_FILE = "trainer_state.json", "model.safetensors"
"""What the Trainer writes last into a checkpoint, and what it writes first."""
SECONDS_FILE = "seconds.json"
"""How long training had taken when a checkpoint was written."""


@dataclass(frozen=True, slots=True)
class FinetuneProgress:
    """How far a fine-tuning is.

    Attributes:
        phase: ``training``, the evaluation set that is predicted, or what is waited for.
        done: steps or examples.
        total: of them.
        loss: mean training loss of the last steps, where it is known.
        waits: nothing is done, since somebody else has the machine.
    """

    phase: str
    done: int
    total: int
    loss: float | None = None
    waits: bool = False


OnProgress = Callable[[FinetuneProgress], None]


@dataclass(frozen=True)
class Training:
    """What is trained, and how; :meth:`run` trains ``model`` in place.

    Attributes:
        model: encoder and head.
        items: what is trained on.
        collate: makes a batch of items, labels included.
        settings: hyper-parameters.
        seed: of the order of the items and of dropout.
        checkpoints: folder that belongs to this training alone.
        device: to train on.
        score: the score by which epochs are compared, for early stopping.
        saves: whether checkpoints are written, so that a kill loses little.
    """

    model: nn.Module
    items: Sequence[Any]
    collate: Collate
    settings: FinetuneSettings
    seed: int
    checkpoints: Path
    device: Device
    score: Callable[[], float]
    saves: bool = True

    @property
    def total_steps(self) -> int:
        """Steps of the whole training."""
        most = self.settings.max_steps
        return self._steps_of_epochs if most is None else min(self._steps_of_epochs, most)

    @property
    def is_cut(self) -> bool:
        """Whether it is shorter than its epochs."""
        return self.total_steps < self._steps_of_epochs

    @property
    def _steps_of_a_pass(self) -> int:
        return ceil(len(self.items) / self.settings.batch_size)

    @property
    def _steps_of_epochs(self) -> int:
        return max(1, ceil(self._steps_of_a_pass * self.settings.epochs))

    def _has_ended(self, state: TrainerState) -> bool:
        """Whether a training was over at a checkpoint: it was whole, or its patience was spent."""
        if state.global_step >= self.total_steps:
            return True
        kept = state.stateful_callbacks.get(EarlyStoppingCallback.__name__, {})
        spent = kept.get("attributes", {}).get("early_stopping_patience_counter", 0)
        patience = self.settings.early_stopping
        return patience is not None and spent >= patience

    def run(
        self,
        on_progress: OnProgress,
        should_stop: Callable[[], bool],
        callbacks: Sequence[TrainerCallback] = (),
    ) -> Trained | None:
        """Train to the end, from the newest checkpoint if there is one.

        Args:
            on_progress: is told of every step.
            should_stop: asked after every step.
            callbacks: of the Trainer, besides its own.

        Returns:
            How it went, or None if it was stopped, after a checkpoint.

        Raises:
            TrainingError: it diverged.
            StoreError: a checkpoint cannot be written.
        """
        resumed = newest_checkpoint(self.checkpoints)
        before = _seconds_at(resumed)
        if resumed is not None and self._has_ended(done := _state(resumed)):
            # By its name: the folder may have been moved since.
            best = self.checkpoints / Path(done.best_model_checkpoint or resumed).name
            load_model(self.model, best / WEIGHTS_FILE)  # the Trainer would take one more step
            self.model.to(self.device)
            return Trained(done.global_step, before)
        by_clock = self.saves and self.settings.early_stopping is None
        clock = _Clock(before, self.total_steps if by_clock else None)
        watch = _Watch(
            self.total_steps,
            self._steps_of_a_pass,
            self.settings.early_stopping is not None,
            on_progress,
            should_stop,
        )
        trainer = _ScoringTrainer(
            self.score,
            model=self.model,
            args=self._arguments(),
            data_collator=self.collate,
            train_dataset=self.items,
            eval_dataset=[] if self.settings.early_stopping else None,
            callbacks=[clock, watch, *callbacks],
        )
        trainer.remove_callback(PrinterCallback)
        if self.settings.early_stopping:
            trainer.add_callback(EarlyStoppingCallback(self.settings.early_stopping))
        try:
            trainer.train(resume_from_checkpoint=str(resumed) if resumed else None)
        except OSError as error:
            raise StoreError(
                f"a checkpoint of the fine-tuning could not be written to {self.checkpoints} "
                f"({error.strerror}); free space there, or set KDNAS_HOME to another disk"
            ) from None
        finally:
            _unwrap(self.model)
        if watch.has_stopped:  # whoever wanted that may have changed his mind since
            return None
        return Trained(int(trainer.state.global_step), clock.seconds())

    def _arguments(self) -> TrainingArguments:
        settings, steps = self.settings, self.total_steps
        by_epoch = settings.early_stopping is not None
        arguments = TrainingArguments(
            output_dir=str(self.checkpoints),
            max_steps=steps,
            per_device_train_batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            lr_scheduler_type="linear",
            warmup_steps=int(settings.warmup_fraction * steps),
            weight_decay=settings.weight_decay,
            max_grad_norm=settings.max_grad_norm,
            bf16=settings.dtype == "bfloat16",
            use_cpu=self.device == "cpu",
            seed=self.seed,
            save_strategy="epoch" if by_epoch else "no",  # else by the clock
            save_total_limit=2,
            eval_strategy="epoch" if by_epoch else "no",
            load_best_model_at_end=by_epoch,
            metric_for_best_model="main" if by_epoch else None,
            greater_is_better=True if by_epoch else None,
            restore_callback_states_from_checkpoint=by_epoch,  # the patience that is left
            logging_steps=max(1, steps // 50),
            logging_nan_inf_filter=False,
            remove_unused_columns=False,  # the collator wants examples whole
            label_names=["labels"],
            report_to="none",
            disable_tqdm=True,
        )
        arguments._n_gpu = min(arguments.n_gpu, 1)  # several would each take a whole batch
        return arguments


@dataclass(frozen=True, slots=True)
class Trained:
    """A training that has come to its end: its steps, and its seconds over all interruptions."""

    steps: int
    seconds: float


def _unwrap(model: nn.Module) -> None:
    """Take off the mixed precision that the Trainer has put around ``forward``.

    Who exports the model would trace its casts. Accelerate's own ``unwrap_model`` would take off
    the decorators of transformers, too.
    """
    if vars(model).pop("_original_forward", None) is not None:
        vars(model).pop("forward", None)


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the newest whole checkpoint; what a kill left half-written is removed."""
    found = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    while found and not _is_whole(found[-1]):
        shutil.rmtree(found.pop())
    return found[-1] if found else None


def _is_whole(checkpoint: Path) -> bool:
    try:
        _state(checkpoint)
    except (OSError, ValueError, TypeError):
        return False
    return True


def _state(checkpoint: Path) -> TrainerState:
    return TrainerState.load_from_json(str(checkpoint / STATE_FILE))


def _seconds_at(checkpoint: Path | None) -> float:
    """Return how long training had taken; 0 if a kill came before it was written."""
    file = checkpoint and checkpoint / SECONDS_FILE
    return float(json.loads(file.read_text())) if file and file.is_file() else 0.0


class _ScoringTrainer(Trainer):  # type: ignore[misc]
    """A Trainer whose evaluation is ours: the score by which epochs are compared."""

    def __init__(self, score: Callable[[], float], **options: Any) -> None:
        super().__init__(**options)
        self._score = score

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        metrics = {"eval_main": self._score()}
        self.log(metrics)
        self.control: TrainerControl = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics


class _Watch(TrainerCallback):  # type: ignore[misc]
    """Tells how training goes, and ends it on request or when the loss is no number.

    Attributes:
        has_stopped: whether it has ended it before its last step.
    """

    def __init__(
        self,
        total_steps: int,
        steps_of_a_pass: int,
        scores_epochs: bool,
        on_progress: OnProgress,
        should_stop: Callable[[], bool],
    ) -> None:
        self._total, self._on_progress, self._should_stop = total_steps, on_progress, should_stop
        self._steps_of_a_pass, self._scores_epochs = steps_of_a_pass, scores_epochs
        self._loss: float | None = None
        self.has_stopped = False

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._on_progress(FinetuneProgress("training", state.global_step, self._total, self._loss))
        if self._should_stop() and state.global_step < self._total:
            control.should_training_stop = self.has_stopped = True
            # A whole epoch is saved when it is scored: a kill between would leave it without.
            whole = state.global_step % self._steps_of_a_pass == 0
            control.should_save = not (self._scores_epochs and whole)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        # Part of an epoch is none: it is scored when the rest of it has been made as well.
        if self.has_stopped and state.global_step % self._steps_of_a_pass:
            control.should_evaluate = control.should_save = False

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, float] | None = None,
        **_: Any,
    ) -> None:
        loss = (logs or {}).get("loss")
        if loss is None:
            return
        if not isfinite(loss):
            raise TrainingError(
                f"fine-tuning diverged: the loss is {loss} at step {state.global_step}; take a "
                "smaller `learning_rate`"
            )
        self._loss = float(loss)


class _Clock(TrainerCallback):  # type: ignore[misc]
    """Counts the seconds of a training over its interruptions, and saves it every so often.

    Args:
        before: seconds of earlier runs.
        total_steps: of the training; None leaves saving to the Trainer.
    """

    def __init__(self, before: float, total_steps: int | None) -> None:
        self._started = self._saved = time.monotonic()
        self._before, self._total_steps = before, total_steps

    def seconds(self) -> float:
        return self._before + time.monotonic() - self._started

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if self._total_steps is None:
            return
        at_end = state.global_step >= self._total_steps
        since = self._started if at_end else self._saved  # a short training is not worth a file
        if time.monotonic() - since >= SAVE_SECONDS:
            control.should_save = True

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._saved = time.monotonic()
        folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
        (folder / SECONDS_FILE).write_text(json.dumps(self.seconds()))
