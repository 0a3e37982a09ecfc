"""What work can have, from made-up lists of nodes; real nodes are asked in integration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psutil
import pytest
import torch

from kdnas.cpu import available_cores
from kdnas.errors import NoRoomError, SpecError
from workers.cluster_machine import summed_up
from workers.machine import Machine, machine_at, this_machine
from workers.probe import MachineFacts, look_around

GIB = 2**30
CPU_FACTS = MachineFacts(16 * GIB, cpu_bfloat16=True)
GPU_FACTS = MachineFacts(32 * GIB, False, 2, 20 * GIB, 80 * GIB, True)


def node(name: str, alive: bool = True, **resources: float) -> dict[str, Any]:
    return {"NodeID": name, "NodeManagerHostname": name, "Alive": alive, "Resources": resources}


NODES = [
    node("head", memory=1e9),
    node("small", CPU=4.0),
    node("large", CPU=16.0),
    node("gpu", CPU=8.0, GPU=2.0),
    node("gone", alive=False, CPU=64.0, GPU=8.0),
]


class Asked:
    """Answers for the nodes, and remembers which was asked."""

    def __init__(self, gpu_facts: MachineFacts = GPU_FACTS) -> None:
        self.gpu_facts = gpu_facts
        self.nodes: list[tuple[str, bool]] = []

    def __call__(self, node: Mapping[str, Any], with_gpu: bool) -> MachineFacts:
        self.nodes.append((node["NodeID"], with_gpu))
        return self.gpu_facts if with_gpu else CPU_FACTS


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_node_with_a_gpu_is_asked_where_work_may_use_one(device: str) -> None:
    ask = Asked()
    found = summed_up("the cluster", NODES, device, ask)
    assert ask.nodes == [("gpu", True)]
    assert (found.cores, found.total_cores, found.gpus) == (16, 28, 2)
    assert found.hosts == ("gpu", "large", "small")
    assert found.choose_device(device) == "cuda"
    assert found.choose_dtype("auto", "cuda") == "bfloat16"
    assert found.choose_dtype("float32", "cuda") == "float32"
    assert found.memory("cuda") == 80 * GIB  # all of it: what is used now may be free by then


def test_the_largest_node_is_asked_for_work_on_cpus() -> None:
    ask = Asked()
    found = summed_up("the cluster", NODES, "cpu", ask)
    assert ask.nodes == [("large", False)]
    assert found.choose_device("cpu") == "cpu"
    assert found.choose_dtype("auto", "cpu") == "bfloat16"
    assert found.memory("cpu") == 16 * GIB


def test_a_gpu_that_is_not_there_is_refused() -> None:
    found = summed_up("the cluster", NODES[:3], "cuda", Asked())
    with pytest.raises(SpecError, match="torch sees no GPU on the cluster; take the device cpu"):
        found.choose_device("cuda")
    assert found.choose_device("auto") == "cpu"


def test_each_worker_of_a_distillation_needs_a_gpu() -> None:
    found = summed_up("the cluster", NODES, "cuda", Asked())
    found.check_gpus(2)
    with pytest.raises(SpecError, match="num_workers 3 need a GPU each, and the cluster has 2"):
        found.check_gpus(3)


def test_a_gpu_that_torch_does_not_see_is_none() -> None:
    found = summed_up("the cluster", NODES, "auto", Asked(CPU_FACTS))
    assert found.gpus == 0
    assert found.choose_device("auto") == "cpu"


def test_a_cluster_without_workers_has_no_room_yet() -> None:
    with pytest.raises(NoRoomError, match="the cluster has no node with cores or GPUs; start one"):
        summed_up("the cluster", NODES[:1] + NODES[4:], "auto", Asked())


def test_threads_stay_on_a_node() -> None:
    found = Machine("two nodes", 8, 16, 0, GIB, 0, False, False)
    assert [found.threads_each(n) for n in (1, 2, 3, 16, 40)] == [8, 8, 5, 1, 1]
    assert found.workers_on_a_node(16, 1) == 8
    assert found.workers_on_a_node(4, 4) == 2
    assert found.workers_on_a_node(1, 8) == 1


def test_this_machine() -> None:
    found = machine_at(None, "auto")
    assert found.cores == found.total_cores == available_cores()
    assert 0 < found.free_bytes <= psutil.virtual_memory().total
    assert found.hosts == ()
    assert found.choose_device("cpu") == "cpu"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")
def test_this_machine_has_a_gpu() -> None:
    found = this_machine()
    assert found.gpus >= 1
    assert found.choose_device("auto") == "cuda"
    assert 0 < found.memory("cuda") <= look_around(with_gpu=True).gpu_bytes
