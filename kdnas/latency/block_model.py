"""From the times of a few blocks to the time of every student.

A student is an embedding, L equal blocks and a constant (performance §4), and weights that do not
fit into a cache come from farther away, so

    t(L, block) = L · b(block) + c₀ + c₁·d + Σ_k h_k · max(0, W − C_k)

with d the hidden size, W the weights of all layers in millions and C_k a ladder of cache sizes. A
block is its heads, hidden size, intermediate size and activation. Timing a block at two depths
gives t(L)/L − t(L')/L', which is free of b: over all blocks these differences give c and h by
non-negative least squares. With them known each depth gives an estimate of b; their mean is far
steadier than their difference.

Blocks share structure. With T the length, f the intermediate and A the heads, the law

    b ≈ non-negative combination of 1, d, f, f·[activation], A, A·T², d², d·f, d·T²

is fitted by non-negative least squares on relative errors. What the law misses (a matrix size that
the kernels like or dislike) belongs to parts of a block: a Gaussian process over the relative
residuals has one variance for equal sizes of each matrix product, each activation, each
attention, and one for the batch in which blocks were timed together. The variances are chosen by
the closed-form leave-one-out error (Rasmussen & Williams 2006, Eq. 5.12); the residual of a
measured block itself is trusted as far as its two depths agree.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import nnls

from kdnas.architecture import ACTIVATIONS, Architecture
from kdnas.errors import LatencyError
from kdnas.models.cost import flops_per_token

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, order=True)
class Block:
    """What the layers of a student have in common."""

    heads: int
    hidden: int
    intermediate: int
    activation: str

    @classmethod
    def of(cls, architecture: Architecture) -> Block:
        """Return the block of a student."""
        a = architecture
        return cls(a.heads, a.hidden, a.intermediate, a.activation)

    def at(self, layers: int) -> Architecture:
        """Return the student with this many such blocks."""
        return Architecture(layers, self.heads, self.hidden, self.intermediate, self.activation)


@dataclass(frozen=True, slots=True)
class BlockTiming:
    """A block timed at several depths.

    Attributes:
        block: the block.
        ms_at: layers → milliseconds of the whole student.
        batch: number of the batch that it was timed in; a batch's times share an error, that of
            its reference.
    """

    block: Block
    ms_at: Mapping[int, float]
    batch: int = 0


# Parts of a block whose time is their own: blocks that agree in one share its deviation.
PARTS: tuple[Callable[[Block], Hashable], ...] = (
    lambda b: b.hidden,
    lambda b: b.intermediate,
    lambda b: b.activation,
    lambda b: b.heads,
    lambda b: (b.hidden, b.intermediate),
    lambda b: (b.hidden, b.heads),
    lambda b: (b.intermediate, b.activation),
)
# C_k in millions of weights: 1 to 64 MB in float32.
CACHE_KNOTS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
_STD_GRID = (0.0, 0.3, 1.0, 3.0)
_BLOCKS_FOR_STDS = 160


def measured_depths(layers: Sequence[int]) -> tuple[int, int]:
    """Choose the two depths at which blocks are timed: second from either end, else the ends.

    The inner depths predict the outer ones and those between, and the deepest costs the most.
    """
    ordered = sorted(layers)
    if len(ordered) >= 4:
        return ordered[1], ordered[-2]
    if len(ordered) >= 2:
        return ordered[0], ordered[-1]
    (only,) = ordered
    return (max(1, only // 2), only) if only > 1 else (1, 2)


def balanced_order(blocks: Sequence[Block], seed: int) -> list[Block]:
    """Order blocks so that every first few cover all their parts about equally often."""
    rng = np.random.default_rng(seed)
    remaining = [blocks[i] for i in rng.permutation(len(blocks))]
    seen: dict[Hashable, int] = {}
    ordered: list[Block] = []
    while remaining:
        chosen = min(
            remaining, key=lambda b: sum(seen.get((i, p(b)), 0) ** 2 for i, p in enumerate(PARTS))
        )
        remaining.remove(chosen)
        ordered.append(chosen)
        for i, part in enumerate(PARTS):
            key = (i, part(chosen))
            seen[key] = seen.get(key, 0) + 1
    return ordered


class BlockModel:
    """Predicts the time of any student from timed blocks; see the module's formulae.

    Args:
        timings: blocks timed at two depths or more.
        length: tokens of the sequence, T.
        gated: whether feed-forward blocks have a gate, and so three matrices.

    Attributes:
        noise: relative error of one block's time, from how well its depths agree.
        loo_error: median relative error of a block predicted from all others.

    Raises:
        LatencyError: no block was timed at two depths.
    """

    def __init__(self, timings: Sequence[BlockTiming], length: int, gated: bool = False) -> None:
        if not timings or min(len(t.ms_at) for t in timings) < 2:
            raise LatencyError(
                f"{len(timings)} blocks were timed, each must be at two depths; raise "
                "--budget-seconds"
            )
        self._length, self._gated = length, gated
        self._overhead = _fit_overhead(timings, gated)
        per_depth = [
            [
                (ms - overhead) / depth
                for (depth, ms), overhead in zip(
                    t.ms_at.items(),
                    self._overhead_ms([t.block.at(d) for d in t.ms_at]),
                    strict=True,
                )
            ]
            for t in timings
        ]
        block_ms = np.array([float(np.mean(values)) for values in per_depth])
        # A block that was disturbed may seem to take no time: it is predicted from the others.
        sound = [i for i, ms in enumerate(block_ms) if ms > 0]
        if 2 * len(sound) <= len(timings):
            slowest = timings[int(np.argmin(block_ms))].block
            raise LatencyError(
                f"{len(timings) - len(sound)} of {len(timings)} blocks, such as {slowest}, seem to "
                "take no time; the machine is too busy to measure, try again when it is free"
            )
        timings = [timings[i] for i in sound]
        per_depth, block_ms = [per_depth[i] for i in sound], block_ms[sound]
        blocks = [t.block for t in timings]
        disagreement = np.array([float(np.std(values, ddof=1)) for values in per_depth]) / block_ms
        counts = np.array([len(values) for values in per_depth])
        # 1.4826 times the median deviation is the deviation of a normal distribution, unmoved by
        # the few blocks that were disturbed; |x| of a pair has its median at 0.6745 deviations.
        self.noise = float(np.median(disagreement / np.sqrt(counts))) * 1.4826
        self._law, _ = nnls(self._features(blocks) / block_ms[:, None], np.ones(len(blocks)))
        law = self._features(blocks) @ self._law
        residuals = block_ms / law - 1.0
        self._fit_residuals(blocks, [t.batch for t in timings], residuals)

    def block_ms(self, blocks: Sequence[Block]) -> Floats:
        """Predict the milliseconds of one layer of each block."""
        law = self._features(blocks) @ self._law
        shared = _kernel(blocks, self._blocks, self._stds) @ self._weights
        own = np.array([self._own.get(block, 0.0) for block in blocks])
        return np.asarray(law * (1.0 + self._mean + shared + own), dtype=float)

    def predict(self, architectures: Sequence[Architecture]) -> Floats:
        """Predict the milliseconds of whole students."""
        distinct = sorted({Block.of(a) for a in architectures})
        block_ms = dict(zip(distinct, self.block_ms(distinct), strict=True))
        layers_ms = np.array([a.layers * block_ms[Block.of(a)] for a in architectures])
        return np.asarray(layers_ms + self._overhead_ms(architectures), dtype=float)

    def _overhead_ms(self, architectures: Sequence[Architecture]) -> Floats:
        return np.asarray(
            _overhead_features(architectures, self._gated) @ self._overhead, dtype=float
        )

    def _features(self, blocks: Sequence[Block]) -> Floats:
        length = self._length
        rows = [
            [
                1.0,
                b.hidden / 1e3,
                b.intermediate / 1e3,
                *(b.intermediate / 1e3 * (b.activation == name) for name in ACTIVATIONS[:-1]),
                b.heads / 10,
                b.heads * length**2 / 1e4,
                b.hidden**2 / 1e6,
                b.hidden * b.intermediate / 1e6,
                b.hidden * length**2 / 1e6,
            ]
            for b in blocks
        ]
        return np.array(rows, dtype=float)

    def _fit_residuals(
        self, blocks: Sequence[Block], batches: Sequence[int], residuals: Floats
    ) -> None:
        self._blocks = list(blocks)
        self._mean = float(np.median(residuals))
        centred = residuals - self._mean
        same = [_same(blocks, blocks, part) for part in PARTS]
        if len(set(batches)) > 1:
            # The batch explains residuals, too, but is no property of a block: not predicted from.
            batch = np.array(batches)
            same.append(np.asarray(batch[:, None] == batch[None, :], dtype=float))
        stds = _choose_stds(same, centred)
        self._stds = stds[: len(PARTS)]
        # In units of the deviation that belongs to one block alone, its noise included.
        covariance = _sum(same, stds) + np.eye(len(blocks))
        factor = cho_factor(covariance)
        self._weights = np.asarray(cho_solve(factor, centred), dtype=float)
        alone = float(centred @ self._weights) / len(blocks)
        trusted = max(0.0, 1.0 - self.noise**2 / alone) if alone > 0 else 0.0
        self._own = dict(zip(blocks, trusted * self._weights, strict=True))
        precision = np.diag(cho_solve(factor, np.eye(len(blocks))))
        self.loo_error = float(np.median(np.abs(self._weights / precision)))


def _overhead_features(architectures: Sequence[Architecture], gated: bool) -> Floats:
    """Return 1, d and the weights beyond each cache size, in millions; one row a student."""
    return np.array(
        [
            [1.0, a.hidden / 1e3, *(max(0.0, _layer_weights(a, gated) - c) for c in CACHE_KNOTS)]
            for a in architectures
        ]
    )


def _layer_weights(a: Architecture, gated: bool) -> float:
    """Weights of all layers in millions: every one takes part in one multiply-add a token."""
    return flops_per_token(a, gated=gated) / 2e6


def _fit_overhead(timings: Sequence[BlockTiming], gated: bool) -> Floats:
    """Fit the part that is not proportional to depth, from each block's own two depths.

    t(L)/L − t(L')/L' is free of b, and linear in the coefficients of the overhead. Rows are
    relative to the block's time; Huber's reweighting keeps disturbed blocks from moving the fit.
    """
    rows, targets = [], []
    for timing in timings:
        depths = sorted(timing.ms_at)
        scale = timing.ms_at[depths[-1]] / depths[-1]
        features = _overhead_features([timing.block.at(depth) for depth in depths], gated)
        for i in range(1, len(depths)):
            low, high = depths[0], depths[i]
            rows.append((features[0] / low - features[i] / high) / scale)
            targets.append((timing.ms_at[low] / low - timing.ms_at[high] / high) / scale)
    columns, y = np.array(rows), np.array(targets)
    robust = np.ones(len(y))
    coefficients = np.zeros(columns.shape[1])
    for _ in range(10):
        root = np.sqrt(robust)
        coefficients, _ = nnls(columns * root[:, None], y * root)
        errors = np.abs(y - columns @ coefficients)
        limit = 1.4826 * float(np.median(errors))
        if limit <= 1e-12:
            break
        robust = np.minimum(1.0, limit / np.maximum(errors, 1e-12))
    return np.asarray(coefficients, dtype=float)


def _same(
    left: Sequence[Block], right: Sequence[Block], part: Callable[[Block], Hashable]
) -> Floats:
    codes: dict[Hashable, int] = {}
    a = np.array([codes.setdefault(part(b), len(codes)) for b in left])
    b = np.array([codes.setdefault(part(b), len(codes)) for b in right])
    return np.asarray(a[:, None] == b[None, :], dtype=float)


def _sum(same: Sequence[Floats], stds: Sequence[float]) -> Floats:
    total = np.zeros_like(same[0])
    for matrix, std in zip(same, stds, strict=True):
        if std:
            total += std**2 * matrix
    return total


def _kernel(left: Sequence[Block], right: Sequence[Block], stds: Sequence[float]) -> Floats:
    return _sum([_same(left, right, part) for part in PARTS], stds)


def _choose_stds(same: Sequence[Floats], residuals: Floats) -> list[float]:
    """Choose each part's deviation, in units of a single block's, by coordinate descent.

    The first blocks are enough for seven numbers; all of them would take longer than timing them.
    """
    count = min(len(residuals), _BLOCKS_FOR_STDS)
    same = [matrix[:count, :count] for matrix in same]
    residuals = residuals[:count]

    def loo_error(stds: Sequence[float]) -> float:
        precision = np.linalg.inv(_sum(same, stds) + np.eye(count))
        return float(np.mean(np.abs((precision @ residuals) / np.diag(precision))))

    stds = [1.0] * len(same)
    best = loo_error(stds)
    for _ in range(2):
        for i in range(len(stds)):
            for value in _STD_GRID:
                trial = [*stds[:i], value, *stds[i + 1 :]]
                error = loo_error(trial)
                if error < best - 1e-9:
                    stds, best = trial, error
    return stds
