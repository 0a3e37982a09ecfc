"""Distillation for one task by TextBrewer, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from tempfile import TemporaryDirectory
from typing import Any

import torch
from task_throughput_rows import FIXED_LENGTH, STEPS, TWO, Clock, Round, Row, Setting
from task_throughput_student import gradient_of, made_student
from torch import Tensor, nn

from kdnas.distill.numerics import autocast
from kdnas.distill.parameter_groups import parameter_groups
from kdnas.evaluation.finetuning.model import load_task_model
from kdnas.models.teacher import TeacherHandle
from kdnas.taskspecific.examples import Examples, Indices, TaskBatch
from kdnas.taskspecific.methods.layer_choice import matched_layers
from workers.task.request import CheckedTask


def padded(batch: TaskBatch, length: int) -> TaskBatch:
    """Pad a batch further, to a fixed length at least."""
    extra = max(0, length - batch.inputs["input_ids"].shape[1])
    inputs = {name: nn.functional.pad(t, (0, extra)) for name, t in batch.inputs.items()}
    return replace(batch, inputs=inputs)


class Peer:
    """TextBrewer, started with our student's weights.

    ``kd_ce`` is the cross entropy of the softened outputs, which has KL's gradient. The match
    ``pkd`` is Σ ‖h^T/‖h^T‖ − h^S/‖h^S‖‖² over matched layers' [CLS], a mean over the batch: Eq. 2.
    """

    def __init__(
        self,
        checked: CheckedTask,
        teacher: TeacherHandle,
        method: str,
        dtype: str,
        dropout: float,
        scratch: str,
    ) -> None:
        from textbrewer import DistillationConfig, GeneralDistiller, TrainingConfig

        class Distiller(GeneralDistiller):  # type: ignore[misc]
            """Autocast around the forward passes and the loss; no file at the end of a round."""

            def train_on_batch(self, batch: Any, args: Any) -> Any:
                with autocast("cpu", dtype):
                    return super().train_on_batch(batch, args)

            def save_and_callback(self, *_: Any) -> None:
                """Keep nothing."""

        hyper = checked.hyper
        taught_by = load_task_model(teacher, checked.data.task, checked.data.labels, 0.0, 0)
        taught_by.model.eval().requires_grad_(False)
        made = made_student(checked, dropout)
        self.student, self._taken = made.model, made.inputs
        self._hyper = hyper
        self._states = method == "pkd"
        beta = hyper.beta if self._states else 1.0
        setting = checked.setting(checked.teacher_shape, hyper.beta, 0)
        matches = [
            {
                "layer_T": theirs,
                "layer_S": own,
                "feature": "hidden",
                "loss": "pkd",
                "weight": 1 - beta,
            }
            for own, theirs in enumerate(matched_layers(setting), start=1)
        ]
        self._distiller = Distiller(
            TrainingConfig(ckpt_steps=STEPS, log_dir=None, output_dir=scratch, device="cpu"),
            DistillationConfig(
                temperature=hyper.temperature,
                kd_loss_type="ce",
                kd_loss_weight=beta,
                hard_label_weight=0,
                intermediate_matches=matches if self._states else None,
            ),
            taught_by.model,
            self.student,
            self._adapt,
            self._adapt,
        )
        self._optimizer = torch.optim.AdamW(
            parameter_groups(self.student.parameters(), hyper.weight_decay), hyper.learning_rate
        )

    def _adapt(self, batch: dict[str, Tensor], outputs: Any) -> dict[str, Any]:
        found = {"logits": outputs.logits}
        return found | ({"hidden": outputs.hidden_states} if self._states else {})

    def _inputs(self, batch: TaskBatch) -> dict[str, Tensor]:
        return {name: t for name, t in batch.inputs.items() if name in self._taken}

    @property
    def _options(self) -> dict[str, Any]:
        return {"output_hidden_states": True} if self._states else {}

    def train(self, batches: Sequence[TaskBatch]) -> Round:
        """Make a step on each batch; the clock starts with the first one."""
        from transformers import get_linear_schedule_with_warmup

        clocks = []

        def watched() -> Iterator[dict[str, Tensor]]:
            clocks.append(Clock())
            for batch in batches:
                yield self._inputs(batch)

        hyper = self._hyper
        with self._distiller:
            self._distiller.train(
                self._optimizer,
                watched(),
                num_steps=len(batches),
                scheduler_class=get_linear_schedule_with_warmup,
                scheduler_args={
                    "num_warmup_steps": round(hyper.warmup_fraction * STEPS),
                    "num_training_steps": STEPS,
                },
                max_grad_norm=hyper.max_grad_norm,
                **self._options,
            )
        return clocks[0].read()

    def gradient(self, batch: TaskBatch) -> Tensor:
        """Gradient of the loss of a batch, with the weights as they are."""
        self.student.eval()
        loss, _ = self._distiller.train_on_batch(self._inputs(batch), self._options)
        loss.backward()
        return gradient_of(self.student)


def serve(
    checked: CheckedTask, teacher: TeacherHandle, examples: Examples, setting: Setting, pipe: Any
) -> None:
    """Train with TextBrewer in a process of its own, as the other end of a pipe asks."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with TemporaryDirectory() as scratch:
        peers = {
            method: Peer(checked, teacher, method, setting.dtype, checked.hyper.dropout, scratch)
            for method in TWO
        }
        while (wanted := pipe.recv()) is not None:
            row, groups = wanted
            # Padding is the caller's own part in TextBrewer, and outside of its time.
            batches = [examples.batch(indices) for indices in groups]
            if row.fixed:
                batches = [padded(batch, FIXED_LENGTH) for batch in batches]
            pipe.send(peers[row.methods[0]].train(batches))


def asked(pipe: Connection, row: Row, groups: Sequence[Indices]) -> Round:
    """Let the other process train."""
    pipe.send((row, groups))
    found: Round = pipe.recv()
    return found
