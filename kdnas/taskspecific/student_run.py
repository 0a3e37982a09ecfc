"""One student in training, through both stages: weights, optimiser, what was seen on the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kdnas.distill.numerics import Device, autocast, derived_seed
from kdnas.distill.parameter_groups import parameter_groups
from kdnas.distill.schedule import linear_warmup_decay
from kdnas.errors import TrainingError
from kdnas.models.quick_dropout import quick_dropout
from kdnas.taskspecific.examples import TaskBatch
from kdnas.taskspecific.methods.base import Method
from kdnas.taskspecific.networks import TaskStudent
from kdnas.taskspecific.outputs import NetworkOutputs
from kdnas.taskspecific.read_words import ReadWords
from kdnas.taskspecific.stages import Hyperparameters, Stage
from kdnas.taskspecific.teacher_outputs import TeacherOutputs


@dataclass
class Best:
    """The epoch that scored best on the held-out examples; of equals the later one.

    Attributes:
        score: on the held-out examples.
        stage: 1 or 2.
        epoch: of that stage, from 1 on.
        weights: of the student then.
    """

    score: float
    stage: int
    epoch: int
    weights: dict[str, Tensor]


class StudentRun:
    """Trains one student by one method, on batches and teacher outputs that somebody else made.

    Nothing in here depends on which other runs share the batches, so that on a CPU a run comes to
    the same weights, to the bit, alone and beside others.

    Args:
        student: at its start, on the CPU.
        method: of the first stage.
        teacher: whom it learns from.
        hyper: what it is trained with.
        seed: of dropout.
        device: where it runs.
        dtype: of the forward passes.

    Attributes:
        curve: of each epoch ``stage``, ``epoch``, ``step``, mean ``loss`` and ``held_out`` score.
        attention: of each epoch of the first stage, ``epoch``, attending ``layers``, mean
            ``weights``.
        samples: see :class:`~kdnas.records.TaskRun`.
        best: the epoch to take.
        error: why it came to nothing, if it diverged.
    """

    def __init__(
        self,
        student: TaskStudent,
        method: Method,
        teacher: TeacherOutputs,
        hyper: Hyperparameters,
        seed: int,
        device: Device,
        dtype: str,
    ) -> None:
        self.student = student.to(device)
        self.method = method.to(device)
        self.teacher, self.hyper = teacher, hyper
        self.curve: list[dict[str, Any]] = []
        self.attention: list[dict[str, Any]] = []
        self.samples: list[dict[str, Any]] = []
        self.best: Best | None = None
        self.error: TrainingError | None = None
        self._seed, self._device, self._dtype = seed, device, dtype
        self._losses = torch.zeros((), dtype=torch.float64, device=device)
        self._since = 0
        self._stage: Stage | None = None
        self._optimizer: torch.optim.Optimizer
        self._read: NDArray[np.int64] | None = None
        self._words: ReadWords | None = None

    def reads_only(self, words: NDArray[np.int64]) -> None:
        """Say which token ids batches can have, padding included; to be said before a stage."""
        self._read = words

    def begin(self, stage: Stage) -> None:
        """Begin a stage, with an optimiser and a schedule of its own.

        What is learned beside the student stays as it is after the first.
        """
        learned = [*self.student.model.parameters()]
        self.write_back()
        table = self.student.network.words()
        if table is not None and self._read is not None and table.weight.requires_grad:
            self._words = ReadWords(table, self._read)
            learned = [self._words.weight if p is table.weight else p for p in learned]
        if stage.number == 1:
            learned += [*self.student.thrown_away(), *self.method.parameters()]
        self._parameters = [p for p in learned if p.requires_grad]
        self._optimizer = torch.optim.AdamW(
            parameter_groups(self._parameters, self.hyper.weight_decay),
            lr=self.hyper.learning_rate,
            fused=True,
        )
        self._stage = stage
        self._losses.zero_()
        self._since = 0

    def asks_teacher(self, stage: Stage) -> bool:
        """Whether it looks at the teacher in a stage."""
        return stage.number == 1 and self.method.needs_teacher

    def step(self, step: int, batch: TaskBatch, said: NetworkOutputs | None) -> None:
        """Make one optimiser step.

        Args:
            step: of the stage, from 0 on.
            batch: on the device.
            said: what the teacher says of it, where that is asked for.
        """
        stage = self._begun()
        self.student.train()
        looked_up = nullcontext() if self._words is None else self._words.looked_up()
        randomness = self._own_randomness(stage, step)
        with randomness, looked_up, autocast(self._device, self._dtype):
            # The second stage learns from the labels alone.
            own = self.student(batch.inputs, logits_only=stage.number == 2)
        loss: Any = self._loss(stage, step, own, batch, said)
        loss.backward()
        rate = self.hyper.learning_rate * linear_warmup_decay(
            step, stage.steps, self.hyper.warmup_fraction
        )
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        if self.hyper.max_grad_norm:
            nn.utils.clip_grad_norm_(self._parameters, self.hyper.max_grad_norm, foreach=True)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        if self._words is not None:
            self._words.decays(1 - rate * self.hyper.weight_decay)
        self._losses += loss.detach()
        self._since += 1

    def _loss(
        self,
        stage: Stage,
        step: int,
        own: NetworkOutputs,
        batch: TaskBatch,
        said: NetworkOutputs | None,
    ) -> Tensor:
        if stage.number == 2:
            return self.method.space.label_loss(own.logits, batch.labels).mean()
        share = stage.epoch_of(step) / stage.epochs
        loss: Tensor = self.method(own, said, batch.labels, share)
        return loss

    def write_back(self) -> None:
        """Bring the student up to date at the end of an epoch, before it is read."""
        if self._words is not None:
            self._words.write_back(others=True)

    def end_epoch(self, done: int, logits: Tensor, score: Callable[[Tensor], float]) -> None:
        """Note an epoch, and keep its weights if it is the best so far.

        Args:
            done: steps of the stage that are made.
            logits: of the student on the held-out examples, (E, K).
            score: of such logits, if they are numbers.

        Raises:
            TrainingError: the loss or the logits are no numbers.
        """
        stage = self._begun()
        loss, epoch = self.mean_loss(), stage.epoch_of(done - 1)
        if not math.isfinite(loss):
            raise self._diverged(f"the loss is {loss}", stage, done)
        if not bool(logits.isfinite().all()):
            raise self._diverged("what the student says is no number", stage, done)
        held_out = score(logits)
        entry = {"stage": stage.number, "epoch": epoch, "step": done}
        self.curve.append({**entry, "loss": loss, "held_out": held_out})
        self._losses.zero_()
        self._since = 0
        if self.best is None or held_out >= self.best.score:
            weights = {k: v.detach().clone() for k, v in self.student.model.state_dict().items()}
            self.best = Best(held_out, stage.number, epoch, weights)

    def _diverged(self, what: str, stage: Stage, done: int) -> TrainingError:
        return TrainingError(
            f"method {self.method.name} diverged: {what} in stage {stage.number} by step {done}; "
            f"take a smaller learning rate than {self.hyper.learning_rate:g}"
        )

    def mean_loss(self) -> float:
        """Mean training loss of the epoch so far; NaN before its first step."""
        return float(self._losses) / self._since if self._since else math.nan

    def take_best(self) -> Best:
        """Give the student the weights of its best epoch."""
        if self.best is None:
            raise ValueError("no epoch is over yet")
        self.student.model.load_state_dict(self.best.weights)
        return self.best

    def state_dict(self) -> dict[str, Any]:
        """All that the next step and the result depend on; of one that has diverged, the latter."""
        best, words = self.best, self._words
        result = {
            "curve": list(self.curve),
            "attention": list(self.attention),
            "samples": list(self.samples),
            "error": None if self.error is None else str(self.error),
            "best": best and [best.score, best.stage, best.epoch, best.weights],
        }
        if self.error is not None:
            return result
        if words is not None:
            words.write_back(others=False)
        return {
            **result,
            "student": self.student.state_dict(),
            "decay": 1.0 if words is None else words.decay,
            "method": self.method.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "losses": float(self._losses),
            "since": self._since,
        }

    def load_state_dict(self, state: dict[str, Any], stage: Stage) -> None:
        """Go on in a stage where :meth:`state_dict` left off; one that has diverged does not."""
        self.curve, self.attention = state["curve"], state["attention"]
        self.samples = state["samples"]
        self.best = Best(*state["best"]) if state["best"] else None
        self.error = TrainingError(state["error"]) if state.get("error") else None
        if self.error is not None:
            return
        self.begin(stage)
        self.student.load_state_dict(state["student"])
        if self._words is not None:
            self._words.read_again()
            self._words.decay = state["decay"]
        self.method.load_state_dict(state["method"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._losses.fill_(state["losses"])
        self._since = int(state["since"])

    def _begun(self) -> Stage:
        if self._stage is None:
            raise ValueError("no stage has begun")
        return self._stage

    @contextmanager
    def _own_randomness(self, stage: Stage, step: int) -> Iterator[None]:
        """Draw dropout masks from the step's own seed, whoever else is in the process."""
        module = torch.cuda if self._device == "cuda" else torch
        others, seed = (
            module.get_rng_state(),
            derived_seed("dropout", self._seed, stage.number, step),
        )
        module.manual_seed(seed)
        quick = quick_dropout(self.student, seed) if self._device == "cpu" else nullcontext()
        try:
            with quick:
                yield
        finally:
            module.set_rng_state(others)
