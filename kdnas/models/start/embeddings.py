"""Embeddings of a student in the basis it was given."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from kdnas.models.families import Family
from kdnas.models.start.copied import copy_embeddings
from kdnas.models.start.norms import fitted_norm, normalised, unit_factor
from kdnas.models.start.states import Layout
from kdnas.models.start.walk import Stream
from kdnas.models.start.weights import norm_eps, read_norm, write_norm


def start_embeddings(
    student: nn.Module,
    teacher: nn.Module,
    family: Family,
    basis: Tensor,
    input_ids: Tensor,
    layout: Layout,
    target: Tensor,
) -> Tensor:
    """Write a student's tables and the norm behind them.

    Sums of embeddings are normalised over the teacher's channels: their mean over channels goes,
    and the scale of each channel. Both are taken into the tables, for in the student's basis they
    could not be. A factorised embedding (ELECTRA) is multiplied out, unless the student has one as
    its teacher has. Where positions are rotary there is nothing to sum, so each word's whole
    normalised embedding goes into the table.

    Args:
        student: the student, on the CPU.
        teacher: the teacher.
        family: of both.
        basis: (D, d).
        input_ids: (N,) calibration text.
        layout: of the text.
        target: (N, d) the teacher's embedding output in the student's basis.

    Returns:
        The student's own embedding output: (N, d).
    """
    if len(basis) == basis.shape[1] and _width(student, family) == _width(teacher, family):
        copy_embeddings(student, teacher)
        return target
    own_norm, norm = (m.get_submodule(family.embedding_norm) for m in (student, teacher))
    known = read_norm(norm)
    widen = known.scale[:, None] * _widening(teacher, basis)  # (E, d)
    tables = _tables(student, family)
    for name, table in tables.items():
        rows = _tables(teacher, family)[name].detach().cpu()
        if family.positions is None:
            rows = normalised(rows, norm_eps(norm))
        else:
            rows = rows - rows.mean(1, keepdim=True)
        with torch.no_grad():
            table.copy_(rows @ widen + (known.shift @ basis if not family.positions else 0))
    sums = tables["words"].detach()[input_ids]
    if "positions" in tables:
        sums = sums + tables["positions"].detach()[layout.places + first_position(student, family)]
    if "types" in tables:
        sums = sums + tables["types"].detach()[0]
    biased = getattr(own_norm, "bias", None) is not None
    fitted, states = fitted_norm(sums, target, norm_eps(own_norm), biased)
    write_norm(own_norm, fitted)
    return states


def unit_stream(student: nn.Module, family: Family, own: Stream) -> Stream:
    """Make the norm behind the embeddings as large as a fresh one; the stream is so from there on.

    Not where a factorised embedding stands between that norm and the stream.
    """
    module = student.get_submodule(family.embedding_norm)
    norm = read_norm(module)
    if len(norm.scale) != own.rows.shape[1]:
        return own
    factor = unit_factor(norm)
    write_norm(module, norm.times(factor))
    return own.times(factor)


def first_position(model: nn.Module, family: Family) -> int:
    """Row of the table of positions that a sequence begins with."""
    config: Any = model.config
    return int(config.pad_token_id) + 1 if family.padded_positions else 0


def _width(model: nn.Module, family: Family) -> int:
    return family.word_embeddings(model).shape[1]


def _widening(teacher: nn.Module, basis: Tensor) -> Tensor:
    """From the width of the embeddings to the student's, (E, d)."""
    widened = getattr(teacher, "embeddings_project", None)
    return widened.weight.detach().cpu().T @ basis if isinstance(widened, nn.Linear) else basis


def _tables(model: nn.Module, family: Family) -> dict[str, nn.Parameter]:
    paths = {"words": family.words, "positions": family.positions, "types": family.token_types}
    return {name: model.get_parameter(f"{p}.weight") for name, p in paths.items() if p}
