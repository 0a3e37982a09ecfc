"""Runs of the study of distillation for one task that are made up."""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

import numpy as np

from kdnas.testing.demo_tasks import task_facts, task_run

TRUTH = tuple(random.Random(0).choice(("yes", "no")) for _ in range(200))
RIGHT = {"none": 0.5, "vanilla-kd": 0.6, "universal-kd-il": 0.9, "alp-kd": 0.6}
"""Share of answers that are right."""


def _said(method: str, seed: int) -> list[str]:
    draw = random.Random(f"{method} {seed}")
    other = {"yes": "no", "no": "yes"}
    return [label if draw.random() < RIGHT[method] else other[label] for label in TRUTH]


def made_up_row(part: str, method: str, seed: int, teacher: str = "one") -> dict[str, Any]:
    """What is kept of a run."""
    facts, answers = task_facts(), _said(method, seed)
    right = sum(a == b for a, b in zip(answers, TRUTH, strict=True)) / len(TRUTH)
    return {
        "part": part,
        **task_run("universal-kd-il" if method == "alp-kd" else method, seed).to_json(),
        "method": method,
        "main": right,
        "metric": "accuracy",
        "teacher": {"fingerprint": teacher, "main": 0.7, "held_out": 0.7},
        "layers": list(facts.layers),
        "student": dict(facts.student),
        "settings": {"dtype": "float32"},
        "predictions": {"dev": answers},
        "machine": "a machine",
    }


def made_up_runs(
    module: ModuleType, name: str, seeds: int = 3, teacher: str = "one", **options: Any
) -> Any:
    """Runs of a part; ``module`` is the one that compares them."""
    methods = tuple(RIGHT)
    rows = [made_up_row(name, method, seed, teacher) for method in methods for seed in range(seeds)]
    part = module.Part(name, "RTE", "first-layers:3", methods, 3, 8, 4, None, options)
    return module.Runs(part, rows, TRUTH)


def made_up_difference(module: ModuleType, centre: float, seeds: int, spread: float = 0.01) -> Any:
    """A difference in points as if it had been seen, of seeds a point apart."""
    draws = np.random.default_rng(0).normal(centre, spread, 2000) / 100
    return module.Difference(
        draws, tuple((centre + s - (seeds - 1) / 2) / 100 for s in range(seeds))
    )
