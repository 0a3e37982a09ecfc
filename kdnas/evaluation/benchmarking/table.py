"""What was measured of models, as a table and as JSON, with the speed-up over one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kdnas.evaluation.model_figures import RUNTIME_NAMES

if TYPE_CHECKING:
    from kdnas.evaluation.benchmarking.run import Benchmark, Speed

ABSENT = "–"


def speed_up(benchmark: Benchmark, speed: Speed, base: str) -> float | None:
    """How many times sooner a model answers than the base model in the same runtime.

    None where the base was not measured in it.
    """
    same = (s for s in benchmark.speeds if (s.model, s.runtime) == (base, speed.runtime))
    other = next(same, None)
    return None if other is None else other.latency_ms / speed.latency_ms


def overall_speed_up(benchmark: Benchmark, speed: Speed, base: str) -> float | None:
    """How many times sooner than the base model in the first runtime that it was measured in."""
    other = next((s for s in benchmark.speeds if s.model == base), None)
    return None if other is None else other.latency_ms / speed.latency_ms


def benchmark_table(benchmark: Benchmark, base: str) -> tuple[list[str], list[list[str]]]:
    """Return header and rows, a row a model and runtime.

    Args:
        benchmark: what was measured.
        base: name of the model that the others are compared with.
    """
    first = next((s for s in benchmark.speeds if s.model == base), benchmark.speeds[0])
    with_batches = benchmark.batch_size is not None
    header = [
        *("model", "runtime", "params M", "disk MB", "weights MB", "peak MB", "ms", "p95 ms"),
        *(("sentences/s", "tokens/s") if with_batches else ()),
        "speed-up",
        f"over {RUNTIME_NAMES[first.runtime]}",
    ]
    rows = []
    for speed in benchmark.speeds:
        row = [
            speed.model,
            RUNTIME_NAMES[speed.runtime],
            f"{speed.parameters / 1e6:.1f}",
            *(
                f"{size / 1e6:.1f}"
                for size in (speed.disk_bytes, speed.weights_bytes, speed.peak_bytes)
            ),
            f"{speed.latency_ms:.2f}",
            f"{speed.latency_p95_ms:.2f}",
        ]
        if with_batches:
            row += [_rate(speed.sentences_per_second), _rate(speed.tokens_per_second)]
        row += [
            _times(speed_up(benchmark, speed, base)),
            _times(overall_speed_up(benchmark, speed, base)),
        ]
        rows.append(row)
    return header, rows


def right_columns(header: Sequence[str]) -> list[str]:
    """Columns of numbers."""
    return [name for name in header if name not in ("model", "runtime")]


def conditions(benchmark: Benchmark, base: str) -> list[str]:
    """Say under which conditions the figures hold, and what they mean."""
    profile = benchmark.profile
    on_gpu = profile.device.startswith("cuda")
    threads = "" if on_gpu else f", {profile.threads} thread{'' if profile.threads == 1 else 's'}"
    clock = "processor time" if profile.threads == 1 and not on_gpu else "elapsed time"
    batches = (
        "" if benchmark.batch_size is None else f"; throughput in batches of {benchmark.batch_size}"
    )
    memory = "that torch allocated on the GPU" if on_gpu else "resident in a process of its own"
    return [
        f"{profile.device.partition(':')[2]}{threads}, {profile.length} tokens, PyTorch in "
        f"{profile.dtype}; latency of one sequence, median and 95th percentile of {clock}{batches}",
        f"peak MB: most memory {memory}, loading and runtime included; speed-up: over {base} in "
        "the same runtime",
    ]


def benchmark_json(benchmark: Benchmark, base: str) -> dict[str, Any]:
    """Return everything as plain JSON."""
    return {
        "base": base,
        "profile": asdict(benchmark.profile),
        "batch_size": benchmark.batch_size,
        "models": [
            {
                **asdict(speed),
                "speed_up": speed_up(benchmark, speed, base),
                "overall_speed_up": overall_speed_up(benchmark, speed, base),
            }
            for speed in benchmark.speeds
        ],
        "left_out": list(benchmark.left_out),
    }


def _rate(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _times(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.2f}×"
