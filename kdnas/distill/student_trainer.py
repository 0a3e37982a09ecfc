"""One student in training: weights, head, optimiser, schedule."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from kdnas.distill.numerics import Device, autocast
from kdnas.distill.schedule import linear_warmup_decay
from kdnas.distill.teacher_pass import Batch, run_encoder
from kdnas.models.families import Family
from kdnas.models.taps import HiddenStates, HiddenStateTap
from kdnas.objectives.base import Head, Meter
from kdnas.records import CurvePoint
from kdnas.specs.parts import TrainingSpec

CURVE_POINTS = 50


class StudentTrainer:
    """Trains one student step by step on hidden states that somebody else computed.

    Nothing in here depends on which other students share the teacher's pass, so on a CPU the
    losses are the same to the bit alone and in any group.
    """

    def __init__(
        self,
        student: nn.Module,
        family: Family,
        head: Head,
        spec: TrainingSpec,
        steps: int,
        device: Device,
        dtype: str,
        dropout_seed: int = 0,
    ) -> None:
        self.student = student.to(device).train()
        self.head = head.to(device).train()
        self.spec, self.steps = spec, steps
        self.step_number = 0
        self.curve: list[CurvePoint] = []
        self.error: str | None = None
        self._device, self._dtype = device, dtype
        self._tap = HiddenStateTap(student, family, head.student_layers)
        self._parameters = [*student.parameters(), *head.parameters()]
        self._optimizer = torch.optim.AdamW(
            self._parameters,
            lr=spec.learning_rate,
            betas=spec.betas,
            weight_decay=spec.weight_decay,
            fused=True,
        )
        self._losses = torch.zeros((), dtype=torch.float64, device=device)
        self._since = 0
        self._dropout_seed = dropout_seed
        self._random_state: Tensor | None = None

    def step(self, batch: Batch, teacher: HiddenStates) -> None:
        """Make one optimiser step; a loss that is not finite sets :attr:`error`."""
        rate = self.spec.learning_rate * linear_warmup_decay(
            self.step_number, self.steps, self.spec.warmup_fraction
        )
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.zero_grad(set_to_none=True)
        with self._own_randomness(), autocast(self._device, self._dtype):
            states = run_encoder(self.student, batch, self._tap)
            loss = self.head(states, teacher)
        loss.backward()
        if self.spec.max_grad_norm:
            nn.utils.clip_grad_norm_(self._parameters, self.spec.max_grad_norm, foreach=True)
        self._optimizer.step()
        self.step_number += 1
        self._losses += loss.detach()
        self._since += 1
        if self.step_number % max(1, self.steps // CURVE_POINTS) == 0 or self.finished:
            self._note(rate)

    @contextmanager
    def _own_randomness(self) -> Iterator[None]:
        """Draw dropout masks from a stream of this student's own, whoever else is in the group."""
        if not self.spec.dropout:
            yield
            return
        module = torch.cuda if self._device == "cuda" else torch
        others = module.get_rng_state()
        if self._random_state is None:
            module.manual_seed(self._dropout_seed)
        else:
            module.set_rng_state(self._random_state)
        try:
            yield
        finally:
            self._random_state = module.get_rng_state()
            module.set_rng_state(others)

    def _note(self, rate: float) -> None:
        mean = float(self._losses) / self._since
        self._losses.zero_()
        self._since = 0
        if math.isfinite(mean):
            self.curve.append(CurvePoint(self.step_number, mean, rate))
        else:
            self.error = self.diverged(f"the training loss was {mean}")

    def diverged(self, what: str) -> str:
        """Word the reason why this student is given up."""
        return (
            f"diverged: {what} by step {self.step_number} of {self.steps}; a smaller "
            f"learning_rate than {self.spec.learning_rate:g} may help"
        )

    @property
    def finished(self) -> bool:
        """Whether all steps are made."""
        return self.step_number >= self.steps

    @property
    def last_loss(self) -> float:
        """Mean training loss of the last stretch of the curve; NaN before the first."""
        return self.curve[-1].loss if self.curve else math.nan

    @property
    def recent_loss(self) -> float:
        """Mean training loss since the last point of the curve; costs a sync on a GPU."""
        return float(self._losses) / self._since if self._since else self.last_loss

    def read(self, batch: Batch, teacher: HiddenStates, meter: Meter) -> None:
        """Add a held-out batch to a meter: eval mode, float32, no gradient."""
        self.student.eval()
        self.head.eval()
        with torch.no_grad():
            meter.add(run_encoder(self.student, batch, self._tap), teacher)
        self.student.train()
        self.head.train()

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on, and the curve so far."""
        return {
            "student": self.student.state_dict(),
            "head": self.head.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "step": self.step_number,
            "curve": [(p.step, p.loss, p.learning_rate) for p in self.curve],
            "losses": self._losses,
            "since": self._since,
            "random_state": self._random_state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where :meth:`state_dict` left off."""
        self.student.load_state_dict(state["student"])
        self.head.load_state_dict(state["head"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.step_number = int(state["step"])
        self.curve = [CurvePoint(*point) for point in state["curve"]]
        self._losses.copy_(state["losses"])
        self._since = int(state["since"])
        self._random_state = state["random_state"]

    def close(self) -> None:
        """Remove the hooks from the student."""
        self._tap.close()
