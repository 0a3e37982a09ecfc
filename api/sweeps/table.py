"""The table of what sweeps have found, for benchmarks without training."""

from __future__ import annotations

from typing import Any

from kdnas.db.engine import Session
from kdnas.db.repository import latencies, sweeps
from kdnas.errors import ConflictError
from kdnas.models.cost import EmbeddingShape, count_parameters
from kdnas.records import SweepFacts
from kdnas.specs.sweep import SweepSpec
from kdnas.tabular.table import Key, StateRow, Table, TableRow

_OF_A_TRAINING = ("seed", "steps", "epochs")
"""What of a proxy tells one training of a table from another."""


def sweep_table(session: Session, reference: str) -> Table:
    """Make the table of a sweep from what it has so far; states that failed are left out.

    Raises:
        NotFoundError: no such sweep.
        ConflictError: nothing was read yet, or its latency table is gone.
    """
    record = sweeps.get_sweep(session, reference)
    facts, spec = sweeps.sweep_facts(session, record.id), SweepSpec.read(record.spec, record.name)
    states = [state for state in sweeps.swept_states(session, record.id) if state.error is None]
    if facts is None or not states:
        raise ConflictError(
            f"sweep {record.name} has read no state yet; wait until it has, or look at `kdnas jobs "
            f"show {record.name}`"
        )
    timed = latencies.load_latency_table(
        session, facts.latency_profile, facts.family, facts.teacher_fingerprint
    )
    if timed is None:
        raise ConflictError(
            f"the latency table of sweep {record.name} is not in the database any more; build it "
            "with `kdnas latency build`"
        )
    rows, known, embedding = [], {}, EmbeddingShape(**facts.embedding)
    for state in states:
        latency_ms = timed.entries[str(state.architecture)].latency_ms
        params_millions = count_parameters(state.architecture, embedding) / 1e6
        known[state.architecture] = StateRow(latency_ms, params_millions)
        for reading in state.readings:
            key = Key(state.architecture, state.seed, spec.steps[-1], reading.step)
            found = reading.losses
            rows.append(TableRow(key, found.relative, found.output, found.mean))
    return Table(tuple(rows), known, timed.teacher_ms, _card(record.spec, facts))


def _card(spec: Any, facts: SweepFacts) -> dict[str, Any]:
    context = dict(facts.context)
    proxy = {k: v for k, v in context["proxy"].items() if k not in _OF_A_TRAINING}
    return {
        "axes": {axis: list(values) for axis, values in facts.axes.items()},
        "head_multiple": facts.head_multiple,
        "teacher": spec["teacher"]["ref"],
        "corpus": spec["corpus"]["source"],
        "context": {**context, "proxy": proxy},
    }
