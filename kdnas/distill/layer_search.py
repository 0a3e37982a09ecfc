"""Which layer of the teacher to learn from: short trials of its upper half.

MiniLMv2 leaves this to a rule of thumb and names an automatic choice as future work (Wang §6). A
loss against one layer cannot be compared with a loss against another: some layers are easy. So
each trial trains the same student for a few steps with another teacher layer, all on one teacher
pass, and then all are asked the same: how much of the teacher's *last* hidden state can be read
off the student's last hidden state by a linear map? The layer of the best answer is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing

import torch
from torch import Tensor, nn

from kdnas.allocator import keep_freed_memory
from kdnas.architecture import Architecture
from kdnas.corpus.batches import BatchPlan, eval_batches, pad_batch
from kdnas.corpus.tokenized import TokenizedCorpus
from kdnas.distill.held_out import HELD_OUT_BATCH, HeldOut
from kdnas.distill.setup import Setup
from kdnas.distill.stages import StagePlan
from kdnas.distill.student_trainer import StudentTrainer
from kdnas.distill.teacher_pass import TeacherPass, run_encoder
from kdnas.errors import TrainingError
from kdnas.models.batch import Batch
from kdnas.models.taps import Tap, TapPoints
from kdnas.objectives.registry import build_stages
from kdnas.records import LayerTrial
from kdnas.specs.objective_base import LearnsOneLayer
from kdnas.specs.parts import TrainingSpec

PROBE_BATCHES = 40
RIDGE = 1e-3
"""Added to the diagonal as a share of its mean, so that the map exists for any student."""


def upper_half(num_layers: int) -> list[int]:
    """Return the layers that are tried: 7 … 12 of 12."""
    return list(range(num_layers // 2 + 1, num_layers + 1))


def try_teacher_layers(
    setup: Setup,
    corpus: TokenizedCorpus,
    architecture: Architecture,
    objective: LearnsOneLayer,
    spec: TrainingSpec,
    steps: int,
    on_step: Callable[[int, int], None] = lambda *_: None,
) -> tuple[LayerTrial, ...]:
    """Train one student for each layer of the upper half, and probe them.

    Args:
        setup: teacher, device and start.
        corpus: training split for trials and probes, held-out split for the figures.
        architecture: of all the students.
        objective: what they learn; its own ``teacher_layer`` counts for nothing.
        spec: batch size, learning rate and the like.
        steps: of each trial.
        on_step: is told steps made, and of how many.

    Returns:
        A trial a layer, in the order of the layers.

    Raises:
        TrainingError: all of the trials diverged.
    """
    keep_freed_memory()
    batches = BatchPlan(corpus.lengths, corpus.train_indices, spec.batch_size, spec.seed)
    with ExitStack() as stack:
        trainers: dict[int, StudentTrainer] = {}
        for layer in upper_half(setup.teacher.shape.layers):
            named = objective.model_copy(update={"teacher_layer": layer})
            plan = StagePlan(build_stages(named)[0].objective, 0, steps, steps)
            student = setup.student(architecture, plan, spec)
            trainer = setup.trainer(student, architecture, plan, spec)
            setup.fit(trainer)
            trainers[layer] = stack.enter_context(closing(trainer))
        teacher = stack.enter_context(setup.teacher_pass(trainers.values()))
        for step in range(steps):
            batch = setup.batch(pad_batch(corpus, batches.batch_indices(step)))
            states = teacher(batch)
            for trainer in trainers.values():
                if trainer.error is None:
                    trainer.step(batch, states)
            on_step(step + 1, steps)
        alive = {layer: t for layer, t in trainers.items() if t.error is None}
        read = list(alive.values())
        losses = HeldOut(setup, corpus, spec, 0).losses(teacher, read) if read else []
        relative = {layer: found.relative for layer, found in zip(alive, losses, strict=True)}
    # The last steps may have ruined a student, which shows in its held-out losses alone.
    students = {layer: t.student for layer, t in alive.items() if t.error is None}
    if not students:
        raise TrainingError(next(iter(trainers.values())).error or "all trials diverged")
    probes = probe_students(setup, corpus, architecture, students, spec)
    return tuple(LayerTrial(layer, relative[layer], probes[layer]) for layer in students)


def probe_students(
    setup: Setup,
    corpus: TokenizedCorpus,
    architecture: Architecture,
    students: dict[int, nn.Module],
    spec: TrainingSpec,
) -> dict[int, float]:
    """Read the teacher's last hidden state off each student's by ridge regression.

    The map, with a bias, is fitted in float64 on tokens of the training split and judged on the
    held-out split.

    Returns:
        For each student the mean squared error over the variance of the teacher's state, both
        means over tokens and dimensions: 0 is perfect, 1 is no better than the mean.
    """
    batches = BatchPlan(corpus.lengths, corpus.train_indices, spec.batch_size, spec.seed)
    last = TapPoints(hidden=frozenset({setup.teacher.shape.layers}))
    own = TapPoints(hidden=frozenset({architecture.layers}))
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        teacher = stack.enter_context(
            TeacherPass(setup.model, setup.family, last, setup.device, setup.dtype)
        )
        taps = {
            layer: stack.enter_context(Tap(student.eval(), setup.family, own))
            for layer, student in students.items()
        }

        def rows(batch: Batch) -> tuple[Tensor, dict[int, Tensor]]:
            target = teacher(batch, exact=True).rows(setup.teacher.shape.layers).double()
            found = {
                layer: _with_bias(
                    run_encoder(students[layer], batch, tap).rows(architecture.layers).double()
                )
                for layer, tap in taps.items()
            }
            return target, found

        gram: dict[int, Tensor] = {}
        cross: dict[int, Tensor] = {}
        for step in range(min(PROBE_BATCHES, batches.num_batches_per_epoch)):
            target, found = rows(setup.batch(pad_batch(corpus, batches.batch_indices(step))))
            for layer, values in found.items():
                gram[layer] = gram.get(layer, 0) + values.T @ values
                cross[layer] = cross.get(layer, 0) + values.T @ target
        maps = {layer: _ridge(gram[layer], cross[layer]) for layer in students}
        squares = dict.fromkeys(students, 0.0)
        first = second = torch.zeros((), dtype=torch.float64)
        tokens = 0
        for padded in eval_batches(corpus, HELD_OUT_BATCH, spec.held_out):
            target, found = rows(setup.batch(padded))
            first, second = first + target.sum(0), second + target.square().sum(0)
            tokens += len(target)
            for layer, values in found.items():
                squares[layer] += float((values @ maps[layer] - target).square().mean(1).sum())
        variance = float((second / tokens - (first / tokens).square()).mean())
    return {layer: square / tokens / variance for layer, square in squares.items()}


def _with_bias(values: Tensor) -> Tensor:
    return torch.cat([values, values.new_ones(len(values), 1)], dim=1)


def _ridge(gram: Tensor, cross: Tensor) -> Tensor:
    penalty = RIDGE * gram.diagonal().mean()
    solved: Tensor = torch.linalg.solve(gram + penalty * torch.eye(len(gram)).to(gram), cross)
    return solved
