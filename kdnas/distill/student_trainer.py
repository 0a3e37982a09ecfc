"""One student in training: weights, head, optimiser, schedule."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from kdnas.distill.numerics import Device, autocast, derived_seed
from kdnas.distill.parallel import ALONE, Parallel
from kdnas.distill.parameter_groups import parameter_groups
from kdnas.distill.schedule import linear_warmup_decay
from kdnas.distill.stages import StagePlan
from kdnas.distill.teacher_pass import run_encoder
from kdnas.models.batch import Batch
from kdnas.models.families import Family
from kdnas.models.taps import Activations, Tap, TapPoints, TokenStates, read_token_states
from kdnas.objectives.base import Head, Meter
from kdnas.records import CurvePoint
from kdnas.specs.parts import TrainingSpec


class StudentTrainer:
    """Trains one student through one stage, on activations that somebody else computed.

    Nothing in here depends on which other students share the teacher's pass, so on a CPU the
    losses are the same to the bit alone and in any group.

    Args:
        student: the student, which goes on from one stage to the next.
        family: of the student.
        head: of the stage's objective.
        spec: how to train.
        plan: the stage: its steps and its learning rate.
        device: where it runs.
        dtype: format of the forward passes.
        dropout_seed: each step draws its dropout masks from this and the step's number.
        parallel: this worker's place among those that train the same student.
        compile_student: run the student through ``torch.compile``.
    """

    def __init__(
        self,
        student: nn.Module,
        family: Family,
        head: Head,
        spec: TrainingSpec,
        plan: StagePlan,
        device: Device,
        dtype: str,
        dropout_seed: int = 0,
        parallel: Parallel = ALONE,
        compile_student: bool = False,
    ) -> None:
        self.student = student.to(device).train()
        self.head = head.to(device).train()
        self.spec, self.plan = spec, plan
        self.step_number = plan.first_step
        self.curve: list[CurvePoint] = []
        self.last_loss = math.nan  # of the newest point of the curve
        self.error: str | None = None
        self._device, self._dtype, self._parallel = device, dtype, parallel
        self._family = family
        self._tap = Tap(student, family, head.student_taps)
        self._forward: Any = (
            torch.compile(self.student, dynamic=True) if compile_student else self.student
        )
        self._parameters = [
            p for p in (*student.parameters(), *head.parameters()) if p.requires_grad
        ]
        self._optimizer = torch.optim.AdamW(
            parameter_groups(self._parameters, spec.weight_decay),
            lr=spec.learning_rate * plan.rate,
            betas=spec.betas,
            fused=True,
        )
        self._words = family.word_embeddings(student)
        self._words_are_looked_up: bool | None = None
        self._losses = torch.zeros((), dtype=torch.float64, device=device)
        self._since = 0
        self._dropout_seed = dropout_seed

    def step(self, batch: Batch, teacher: Activations) -> None:
        """Make one optimiser step on one batch."""
        self.learn(batch, teacher)
        self.update()

    def learn(self, batch: Batch, teacher: Activations, part: int = 0) -> None:
        """Add the gradient of one part of the step's batch."""
        with self._own_randomness(part), autocast(self._device, self._dtype):
            states = run_encoder(self._forward, batch, self._tap)
            loss = self.head(states, teacher)
        loss.backward()
        self._losses += loss.detach()

    def update(self, tokens: Tensor | None = None) -> None:
        """Make the optimiser step; a loss that is not finite sets :attr:`error`.

        Args:
            tokens: (n,) all tokens of the step's whole batch, once each. Workers that give them
                exchange no other rows of the word embeddings, where that is the same.
        """
        rate = (
            self.spec.learning_rate
            * self.plan.rate
            * linear_warmup_decay(
                self.step_number - self.plan.first_step, self.plan.steps, self.spec.warmup_fraction
            )
        )
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        rows = self._rows_of_words(tokens)
        self._parallel.sum_gradients(self._parameters, None if rows is None else self._words, rows)
        if self.spec.max_grad_norm:
            nn.utils.clip_grad_norm_(self._parameters, self.spec.max_grad_norm, foreach=True)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.step_number += 1
        self._since += 1
        if self.step_number % self.plan.curve_every == 0 or self.finished:
            self._note(rate)

    def _rows_of_words(self, tokens: Tensor | None) -> Tensor | None:
        """Rows outside of which no worker's word embeddings have a gradient; None for no such rows.

        A masked-LM head that is tied to them gives every row one. Which it is shows in the first
        step of the stage.
        """
        gradient = self._words.grad
        if tokens is None or gradient is None or self._parallel.world_size == 1:
            return None
        tokens = tokens.to(gradient.device, non_blocking=True)
        if self._words_are_looked_up is None:
            elsewhere = gradient.count_nonzero() > gradient[tokens].count_nonzero()
            self._words_are_looked_up = not self._parallel.any(bool(elsewhere))
        return tokens if self._words_are_looked_up else None

    @contextmanager
    def _own_randomness(self, part: int) -> Iterator[None]:
        """Draw dropout masks from the step's own seed, whoever else is in the process."""
        if not self.spec.dropout:
            yield
            return
        module = torch.cuda if self._device == "cuda" else torch
        others = module.get_rng_state()
        module.manual_seed(
            derived_seed(self._dropout_seed, self.step_number, self._parallel.rank, part)
        )
        try:
            yield
        finally:
            module.set_rng_state(others)

    def _note(self, rate: float) -> None:
        mean = sum(self._parallel.gather(float(self._losses))) / self._since
        self._losses.zero_()
        self._since = 0
        self.last_loss = mean
        if math.isfinite(mean):
            self.curve.append(CurvePoint(self.step_number, mean, rate))
        else:
            self.error = self.diverged(f"the training loss was {mean}")

    def diverged(self, what: str) -> str:
        """Word the reason why this student is given up."""
        if self.step_number == 0:
            return (
                f"{what} before the first step, so that there is nothing to train; choose another "
                "student.init, or check the weights that it begins with"
            )
        return (
            f"diverged: {what} by step {self.step_number} of {self.plan.total_steps}; a smaller "
            f"learning_rate than {self.spec.learning_rate:g} may help"
        )

    @property
    def finished(self) -> bool:
        """Whether all steps of the stage are made."""
        return self.step_number >= self.plan.end

    @property
    def recent_loss(self) -> float:
        """This worker's mean loss since the last point of the curve; costs a sync on a GPU."""
        if not self._since:
            return self.last_loss
        return float(self._losses) / self._since * self._parallel.world_size

    @property
    def training_loss(self) -> float:
        """Mean loss of the last stretch of the curve, or so far if there is none yet."""
        return self.last_loss if math.isfinite(self.last_loss) else self.recent_loss

    def look(self, batch: Batch, teacher: Activations) -> float:
        """Return the loss of a part of a step's batch, in eval mode, without learning from it."""
        self.student.eval()
        self.head.eval()
        with torch.no_grad(), autocast(self._device, self._dtype):
            loss = float(self.head(run_encoder(self.student, batch, self._tap), teacher))
        self.student.train()
        self.head.train()
        return loss

    def token_states(self, points: TapPoints, batches: Iterable[Batch]) -> TokenStates:
        """Return what the student makes of some text, in eval mode and float32."""
        with self.evaluating() as student:
            return read_token_states(student, self._family, points, batches)

    @contextmanager
    def evaluating(self) -> Iterator[nn.Module]:
        """Hand out the student in eval mode, to be run on something else than a step's batch."""
        self.student.eval()
        try:
            yield self.student
        finally:
            self.student.train()
            self._tap.forget()  # or these activations would be kept until the next step

    def read(self, batch: Batch, teacher: Activations, meter: Meter) -> None:
        """Add a held-out batch to a meter: eval mode, float32, no gradient."""
        self.student.eval()
        self.head.eval()
        with torch.no_grad():
            meter.add(run_encoder(self.student, batch, self._tap), teacher)
        self.student.train()
        self.head.train()

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on; all workers must ask for it together."""
        return {
            "student": self.student.state_dict(),
            "head": self.head.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "step": self.step_number,
            "losses": self._parallel.gather(float(self._losses)),
            "last_loss": self.last_loss,
            "since": self._since,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where :meth:`state_dict` left off."""
        self.student.load_state_dict(state["student"])
        self.head.load_state_dict(state["head"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.step_number = int(state["step"])
        losses = state["losses"]  # of each worker; as many as there were
        if len(losses) != self._parallel.world_size:
            losses = (sum(losses), *[0.0] * (self._parallel.world_size - 1))
        self._losses.fill_(losses[self._parallel.rank])
        self._since = int(state["since"])
        self.last_loss = float(state["last_loss"])

    def weights(self) -> list[Tensor]:
        """All that is learned, and what goes with it, of student and head."""
        return [*self.student.state_dict().values(), *self.head.state_dict().values()]

    def close(self) -> None:
        """Remove the hooks from the student."""
        self._tap.close()
