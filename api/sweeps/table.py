"""The table of what sweeps have found, for benchmarks without training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kdnas.db.engine import Session
from kdnas.db.repository import latencies, sweeps
from kdnas.errors import ConflictError
from kdnas.models.cost import EmbeddingShape, count_parameters
from kdnas.search_space import SearchSpace
from kdnas.specs.sweep import SweepSpec
from kdnas.tabular.card import context_of_all
from kdnas.tabular.table import Key, StateRow, Table, TableRow


def sweep_table(session: Session, reference: str) -> Table:
    """Make the table of a sweep from what it has so far; states that failed are left out.

    It knows the latency of every state of its space, read or not.

    Raises:
        NotFoundError: no such sweep.
        ConflictError: nothing was read yet, or its latency table is gone.
    """
    record = sweeps.get_sweep(session, reference)
    facts, spec = sweeps.sweep_facts(session, record.id), SweepSpec.read(record.spec, record.name)
    states = [state for state in sweeps.swept_states(session, record.id) if state.error is None]
    if facts is None or not states:
        raise ConflictError(
            f"sweep {record.name} has read no state yet; wait until it has, or look at what the "
            "job says"
        )
    timed = latencies.load_latency_table(
        session, facts.latency_profile, facts.family, facts.teacher_fingerprint
    )
    if timed is None:
        raise ConflictError(
            f"the latency table of sweep {record.name} is not in the database any more; have it "
            "measured again"
        )
    embedding = EmbeddingShape(**facts.embedding)
    known = {
        entry.architecture: StateRow(
            entry.latency_ms, count_parameters(entry.architecture, embedding) / 1e6
        )
        for entry in timed.entries.values()
    }
    rows = [
        TableRow(
            Key(state.architecture, state.seed, spec.steps[-1], reading.step),
            reading.losses.relative,
            reading.losses.output,
            reading.losses.mean,
        )
        for state in states
        for reading in state.readings
    ]
    space = replace(SearchSpace.from_axes(facts.axes), head_multiple=facts.head_multiple)
    card = card_of(record.spec, space, facts.context)
    return Table(tuple(rows), known, timed.teacher_ms, card)


def card_of(
    spec: Mapping[str, Any], space: SearchSpace, context: Mapping[str, Any]
) -> dict[str, Any]:
    """How the table of a sweep is made, as plain JSON.

    Args:
        spec: of the sweep, resolved.
        space: its states.
        context: what decides its losses.
    """
    card = {
        "axes": space.axes,
        "head_multiple": space.head_multiple,
        "teacher": spec["teacher"]["ref"],
        "corpus": spec["corpus"]["source"],
        "context": context_of_all(context),
    }
    plain: dict[str, Any] = json.loads(json.dumps(card))  # tuples are lists there
    return plain
