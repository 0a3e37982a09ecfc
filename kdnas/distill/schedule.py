"""How many steps, and the learning rate at each of them."""

from __future__ import annotations

import math

from kdnas.specs.parts import TrainingSpec


def total_steps(spec: TrainingSpec, batches_per_epoch: int) -> int:
    """Return the optimiser steps of a training; steps win over epochs, which give 1 at least."""
    if spec.steps is not None:
        return spec.steps
    assert spec.epochs is not None  # the spec's own validator
    return max(1, math.ceil(spec.epochs * batches_per_epoch))


def linear_warmup_decay(step: int, steps: int, warmup_fraction: float) -> float:
    """Return the factor of the peak learning rate at a step (from 0).

    It rises linearly over the first ``warmup_fraction`` of the steps, then falls linearly and
    would reach 0 at step ``steps`` (Trivedi App. B, Udagawa App. B).
    """
    warmup = round(warmup_fraction * steps)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return (steps - step) / max(1, steps - warmup)
