"""What a Ray cluster offers, as its nodes tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from kdnas.errors import BackendError, NoRoomError, OutOfReachError
from workers.cluster import cluster
from workers.machine import Machine
from workers.probe import MachineFacts, look_around

ANSWER_SECONDS = 60.0
"""A node's first answer: its process loads, and torch in it for a GPU."""

Ask = Callable[[Mapping[str, Any], bool], MachineFacts]


def machine_of_cluster(address: str, device: str) -> Machine:
    """Ask a running cluster what work can have there; see ``workers.machine.machine_at``."""
    name = f"the Ray cluster at {address!r}"
    with cluster(address):
        try:
            return summed_up(name, ray.nodes(), device, _ask)
        except GetTimeoutError:
            raise OutOfReachError(
                f"no node of {name} answered within {ANSWER_SECONDS:.0f} s; look at its nodes "
                "with `ray status`"
            ) from None
        except RayError as error:
            reason = " ".join(str(error).split())[-200:]
            raise BackendError(
                f"a node of {name} could not run kdnas ({reason}); install the same version of "
                "it there as here"
            ) from error


def summed_up(name: str, nodes: Sequence[Mapping[str, Any]], device: str, ask: Ask) -> Machine:
    """Sum up a list of nodes, with the answers of the one that work would go to first.

    Args:
        name: of the cluster, for sentences.
        nodes: as ``ray.nodes`` gives them.
        device: what was asked for.
        ask: what a node answers, about its GPU as well or not.

    Raises:
        NoRoomError: none of them offers cores or GPUs.
    """
    offering = [n for n in nodes if n["Alive"] and (_of(n, "CPU") >= 1 or _of(n, "GPU") >= 1)]
    if not offering:
        raise NoRoomError(
            f"{name} has no node with cores or GPUs; start one with `ray start --address=…`"
        )
    gpus = int(sum(_of(node, "GPU") for node in offering))
    on_gpu = gpus > 0 and device != "cpu"
    facts = ask(
        max(offering, key=lambda n: (_of(n, "GPU") if on_gpu else 0, _of(n, "CPU"))), on_gpu
    )
    return Machine(
        name,
        max(1, int(max(_of(node, "CPU") for node in offering))),
        max(1, int(sum(_of(node, "CPU") for node in offering))),
        gpus if facts.gpus else 0,
        facts.free_bytes,
        facts.gpu_bytes,
        facts.cpu_bfloat16,
        facts.gpu_bfloat16,
        tuple(sorted({str(node["NodeManagerHostname"]) for node in offering})),
    )


def _of(node: Mapping[str, Any], resource: str) -> float:
    return float(node["Resources"].get(resource, 0.0))


def _ask(node: Mapping[str, Any], with_gpu: bool) -> MachineFacts:
    """Run the probe on a node, whatever is reserved there."""
    there = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
    probe = _GPU_PROBE if with_gpu else _PROBE
    answer = probe.options(scheduling_strategy=there).remote(with_gpu)
    facts: MachineFacts = ray.get(answer, timeout=ANSWER_SECONDS)
    return facts


_PROBE: Any = ray.remote(num_cpus=0)(look_around)
_GPU_PROBE: Any = ray.remote(num_cpus=0, max_calls=1)(look_around)
"""Ends with its answer: a process that has seen a GPU keeps some of its memory."""
