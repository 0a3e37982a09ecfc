"""Requests that somebody made to hurt: each is a sound one with something else at one place."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_LONG: Final = "x" * 10**6
_MANY: Final = 10**5
_DEEP: Final = 10**5


@dataclass(frozen=True)
class HostileSpec:
    """A request with a value at a place where another belongs.

    Attributes:
        kind: of the job.
        place: path of the entry, such as ``proxy.steps``; empty for the whole request.
        value: what stands there; of the whole request, its text.
    """

    kind: str
    place: str
    value: Any

    @property
    def name(self) -> str:
        """What it is called: the place, and the value in short."""
        told = self.value if isinstance(self.value, str) else repr(self.value)
        short = told if len(told) <= 32 else f"{told[:24]}… ({len(told)} characters)"
        return f"{self.place or 'the whole'}: {ascii(short)[1:-1]}"

    def body(self, sound: Mapping[str, Any]) -> bytes:
        """The request as it is sent.

        Args:
            sound: a request of the kind with which all is well.
        """
        if not self.place:
            return str(self.value).encode("utf-8", "surrogatepass")
        whole = copy.deepcopy(dict(sound))
        level: dict[str, Any] = whole
        *parents, last = self.place.split(".")
        for parent in parents:
            inner = level.get(parent)
            level[parent] = inner if isinstance(inner, dict) else {}
            level = level[parent]
        level[last] = self.value
        return json.dumps(whole).encode()


def _at(kind: str, place: str, *values: Any) -> list[HostileSpec]:
    return [HostileSpec(kind, place, value) for value in values]


SPECS: Final = [
    *_at("search", "teacher.ref", "/etc/passwd", "../../../..", "file:///etc/passwd", "a\0b"),
    *_at("search", "teacher.ref", "\ud800", _LONG, 3, [], {"$ref": "#"}, "\u202egpj.bert"),
    *_at("search", "corpus.source", "/dev/zero", "/proc/self/mem", "hub:../..", "/**/*"),
    *_at("search", "corpus.source", ["corpus.txt"] * _MANY, {}, ""),
    *_at("search", "corpus.max_length", 10**30, -1, 1.5, True, float("nan")),
    *_at("search", "space.axes.layers", list(range(1, _MANY)), [10**9], [], [0], [float("inf")]),
    *_at("search", "space.axes.hidden", [10**12], [[[]]], "48"),
    *_at("search", "proxy.steps", 10**30, 0, "many"),
    *_at("search", "proxy.batch_size", 10**12),
    *_at("search", "proxy.learning_rate", float("inf"), -1.0, 1e308),
    *_at("search", "controller.candidates", 10**12),
    *_at("search", "controller.episodes", 10**12),
    *_at("search", "controller.strategy", "os:system", {"name": "controller", "__class__": "x"}),
    *_at("search", "backend.address", "http://169.254.169.254/", "ray://127.0.0.1:1"),
    *_at("search", "backend.num_workers", 10**12),
    *_at("search", "limits.max_latency_ms", -1, 1e-300),
    *_at("search", "seed", 2**64, -1, "0x1"),
    *_at("search", "name", "../../etc", _LONG, "", "a\nb", ".", "\u202e", None, {"a": 1}),
    *_at("search", "goal", "__proto__"),
    *_at("search", "objective", {"name": "minilmv2", "relation_heads": 10**12}),
    *_at("search", "objective", {"mapping": {"1": list(range(_MANY))}}, "eval(1)"),
    *_at("search", "", "[]", "3", "null", "", "{", "[" * _DEEP, '{"seed": 1, "seed": 2}'),
    *_at("search", "", '{"a":' * _DEEP + "1" + "}" * _DEEP, '{"seed": 1e400}', " " * 2**21),
    *_at("sweep", "steps", [10**18], [-1], [], list(range(_MANY)), [float("nan")]),
    *_at("sweep", "states", 10**18, -1, [0] * _MANY),
    *_at("distillation", "architecture", "2,4,24,48,silu;reboot", "9" * _MANY + ",4,24,48,silu"),
    *_at("distillation", "architecture", "1," * _MANY, "2,4,24,48,\u202e", 3),
    *_at("distillation", "training.steps", 10**18, -5),
    *_at("distillation", "training.batch_size", 10**12),
    *_at("distillation", "training.num_workers", 10**12),
    *_at("distillation", "training.threads", 10**12),
    *_at("distillation", "training.checkpoints", "/proc/1/x", "s3://../..", "memory://x"),
    *_at("distillation", "output", "/proc/evil", "a\0b", _LONG),
    *_at("distillation", "student.init_from", "/root", {"ref": "/dev/zero"}),
    *_at("task_distillation", "student", f"first-layers:{10**18}", "layers:" + "1," * _MANY),
    *_at("task_distillation", "methods", ["none"] * _MANY, ["os.system"]),
    *_at("task_distillation", "learning_rate", 1e308, float("nan")),
    *_at("task_distillation", "max_length", 10**12, 1),
    *_at("task_distillation", "grid", {"betas": [0.5] * _MANY}),
    *_at("evaluation", "tasks", ["SST-2"] * _MANY, ["../SST-2"]),
    *_at("evaluation", "seeds", list(range(_MANY)), [10**18]),
    *_at("evaluation", "data_dir", "/", "/dev", "\0"),
    *_at("evaluation", "max_length", 10**12),
    *_at("evaluation", "latency", {"length": 10**12}),
    *_at("pipeline", "choose", 10**12, -1),
    *_at("pipeline", "baselines.random", 10**12),
    *_at("pipeline", "baselines.proportions", [[1e308, 1e-308]], [[0.5, 0.5]] * _MANY),
    *_at("pipeline", "search.teacher.ref", "/etc/passwd"),
    *_at("pipeline", "distillation.training.batch_size", 10**12),
]
