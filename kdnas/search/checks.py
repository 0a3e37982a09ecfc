"""What the loop does not take on trust: results, proposals and events of others."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Sequence
from dataclasses import asdict, replace

from kdnas.errors import BackendError, SpecError
from kdnas.records import (
    BackendEvent,
    CandidateFinished,
    Losses,
    MiniKDRequest,
    MiniKDResult,
    Proposal,
    Reading,
)


def checked_result(result: MiniKDResult, request: MiniKDRequest) -> MiniKDResult:
    """Turn a result that is an error, empty or not finite into a failure with a reason.

    A start that is not finite counts as one that was not read, and of the readings on the way those
    are left that were asked for and are finite.
    """
    if result.loss_start is not None and not math.isfinite(result.loss_start):
        result = replace(result, loss_start=None)
    readings = tuple(
        reading
        for reading in result.readings
        if reading.step in request.read_after and _is_whole(reading)
    )
    result = replace(result, readings=readings)
    if result.error is not None:
        return replace(result, losses=None)
    if result.stopped:
        if any(rung.stops(readings[-1]) for rung in request.rungs):
            return result
        return replace(
            result, error=f"the worker ended it after {result.steps} steps without being asked to"
        )
    if result.losses is None:
        return replace(result, error="the worker returned neither losses nor a reason")
    wrong = _not_finite(result.losses)
    if not wrong:
        return result
    return replace(
        result,
        losses=None,
        error=f"losses are not finite ({', '.join(wrong)}); lower proxy.learning_rate",
    )


def _is_whole(reading: Reading) -> bool:
    """Whether a reading is finite; before the first step there is no training loss."""
    losses = reading.losses if reading.step else replace(reading.losses, training=0.0)
    return not _not_finite(losses)


def _not_finite(losses: Losses) -> list[str]:
    return [f"{k} {v}" for k, v in asdict(losses).items() if not math.isfinite(v)]


def not_learned(
    output: float, learning_rate: float, setting: str = "proxy.learning_rate"
) -> str | None:
    """Say why a student is no success that was trained to the end, or None if it is one.

    ``output`` is the loss as a share of that of the best student that ignores its input, so from 1
    on the training has ruined the student, or was too short for it (docs/science.md). Losses that
    were looked up are judged by the same function.

    Args:
        output: held-out output loss at the end of the training.
        learning_rate: the peak of the training.
        setting: of the request that has the learning rate.
    """
    if output < 1:
        return None
    return (
        f"has not learned: its held-out output loss is {output:.4g}, that of a student that "
        f"ignores its input is 1; a smaller {setting} than {learning_rate:g} or more steps may help"
    )


def check_proposals(name: str, proposals: object, count: int, allowed: Sequence[int]) -> None:
    """Refuse what is no list of proposals, and such that are repeated, not allowed, or too many.

    Raises:
        SpecError: they are; the strategy named in the request is at fault.
    """
    returns = "its ask returns a list of kdnas.records.Proposal, each with an int and a text"
    if not isinstance(proposals, Sequence):
        raise SpecError(f"strategy {name!r} proposed {_shown(proposals)}; {returns}")
    for one in proposals:
        if not isinstance(one, Proposal):
            raise SpecError(f"strategy {name!r} proposed {_shown(one)}, no Proposal; {returns}")
        if type(one.index) is not int or not isinstance(one.source, str):
            raise SpecError(
                f"strategy {name!r} proposed {_shown(one.index)} with the source "
                f"{_shown(one.source)}; {returns}"
            )
    indices = [proposal.index for proposal in proposals]
    wrong = sorted(set(indices) - set(allowed))
    if wrong or len(set(indices)) < len(indices) or len(indices) > count:
        detail = f", among them {wrong[:5]} that are not allowed" if wrong else ""
        raise SpecError(
            f"strategy {name!r} proposed {len(indices)} states, {len(set(indices))} of them "
            f"distinct{detail}; it was asked for at most {count} distinct allowed states"
        )


def _shown(value: object) -> str:
    return " ".join(reprlib.repr(value).split())


def check_event(event: BackendEvent, pending: set[str]) -> None:
    """Refuse events about candidates that nobody waits for.

    Raises:
        BackendError: names the candidates.
    """
    named = (
        {event.result.candidate_id}
        if isinstance(event, CandidateFinished)
        else set(event.candidate_ids)
    )
    if named - pending:
        raise BackendError(
            f"a worker reported {type(event).__name__} for candidates "
            f"{sorted(named - pending)[:5]} that are finished or were never requested; "
            "this is a fault of the backend"
        )
