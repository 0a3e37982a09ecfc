"""What a search would take, found without starting it."""

from __future__ import annotations

import statistics
from typing import Any

from api.inputs.preparation import stored_latencies
from api.searches.run import PreparedSearch, require_starts, swept_starts
from kdnas.cpu import available_cores
from kdnas.db.engine import Database
from kdnas.db.exploration import losses
from kdnas.distill.numerics import own_device
from kdnas.latency.measure import current_profile
from kdnas.models.cost import EmbeddingShape, flops_per_token, teacher_architecture
from kdnas.search.limits import allowed_states, state_facts
from workers.layout import largest_student_bytes, teacher_bytes
from workers.mini_kd import time_students

GIB = 2**30


def plan_search(prepared: PreparedSearch, database: Database) -> dict[str, Any]:
    """Return the figures of ``--dry-run``.

    Time is measured: a group of students of middle size makes a few steps in this process, also if
    the search would go to a cluster.

    Raises:
        SpecError: the search would be refused: its strategy needs readings that there are not, or
            no state is within the limits, as far as latencies are known.
    """
    spec, space = prepared.spec, prepared.space
    teacher, corpus = prepared.pinned.teacher, prepared.pinned.corpus
    controller, backend = spec.controller, spec.backend
    with database.read() as session:
        require_starts(prepared, swept_starts(session, prepared))
        known = losses.known_losses(session, prepared.context.fingerprint, list(space.states))
    table = stored_latencies(database, current_profile(spec.latency), teacher)
    num_allowed = None  # of a table that lacks states, limits on latency cannot be told
    if table is not None and all(str(state) in table.entries for state in space.states):
        facts = state_facts(space, table, prepared.params_millions)
        num_allowed = len(allowed_states(facts, spec.limits))
    num_candidates = min(
        controller.episodes * controller.candidates,
        len(space) if num_allowed is None else num_allowed,
    )
    ranked = sorted(space.states, key=flops_per_token)
    middle = ranked[len(ranked) // 2]
    group_size, num_workers = backend.group_size or 1, backend.num_workers or 1
    timing = time_students(
        prepared.context,
        teacher,
        corpus,
        prepared.store,
        [middle] * group_size,
        own_device(backend.device),
        min(backend.threads or 1, available_cores()),
    )
    tokens = timing.steps * spec.proxy.batch_size * statistics.fmean(corpus.lengths)
    gated, own = EmbeddingShape.of(teacher.shape).gated, teacher_architecture(teacher.shape)
    student_flops = 3 * flops_per_token(middle, gated=gated) * tokens
    teacher_flops = (flops_per_token(own, gated=gated) if own else 0) * tokens / group_size
    return {
        "num_states": len(space),
        "num_allowed": num_allowed,
        "num_episodes": controller.episodes,
        "num_candidates": num_candidates,
        "num_known": len(known),
        "steps": timing.steps,
        "rungs": list(spec.proxy.rungs),
        "batch_size": spec.proxy.batch_size,
        "total_tflops": num_candidates * (student_flops + teacher_flops) / 1e12,
        "teacher_share": teacher_flops / (student_flops + teacher_flops),
        "group_size": group_size,
        "group_gib": group_size
        * largest_student_bytes(space, teacher.shape, spec.proxy, spec.corpus.max_length)
        / GIB,
        "teacher_gib": teacher_bytes(teacher.shape) / GIB,
        "num_workers": num_workers,
        "threads": backend.threads,
        "device": backend.device,
        "dtype": prepared.context.dtype,
        "seconds_per_student": timing.seconds_per_student,
        "training_seconds": num_candidates * timing.seconds_per_student / num_workers,
        "latency_known": table is not None,
    }
