"""Whether a full distillation that came to its end has taught its student anything."""

from __future__ import annotations

from kdnas.db.records import DistillationRecord
from kdnas.search.checks import not_learned


def learned_nothing(record: DistillationRecord) -> str | None:
    """Say why a stored student is no success, or None if it is one, or is not there.

    A student as it starts was to learn nothing.
    """
    output = record.metrics.get("output")
    if record.status != "succeeded" or not record.total_steps or output is None:
        return None
    rate = record.spec["training"]["learning_rate"]
    return not_learned(output, rate, "training.learning_rate")
