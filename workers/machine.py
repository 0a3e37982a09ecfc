"""What work can have: of this machine, or of the cluster that it goes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kdnas.cpu import available_cores
from kdnas.errors import SpecError
from workers.probe import look_around

Device = Literal["cpu", "cuda"]
Dtype = Literal["float32", "bfloat16"]


@dataclass(frozen=True, slots=True)
class Machine:
    """The means of one machine or of a cluster's nodes together.

    Attributes:
        name: for sentences: ``this machine`` or ``the Ray cluster at '…'``.
        cores: of the largest node; no worker can have more.
        total_cores: of all nodes.
        gpus: of all nodes.
        free_bytes: memory available on the largest node.
        gpu_bytes: memory that work can have on a GPU. Of a cluster it is all that a GPU has, since
            Ray gives out GPUs one by one and what is used now may be free when work begins.
        cpu_bfloat16: whether the CPU is fast at bfloat16.
        gpu_bfloat16: whether the GPU is.
        hosts: where the nodes are; empty means here.
    """

    name: str
    cores: int
    total_cores: int
    gpus: int
    free_bytes: int
    gpu_bytes: int
    cpu_bfloat16: bool
    gpu_bfloat16: bool
    hosts: tuple[str, ...] = ()

    def choose_device(self, wanted: str) -> Device:
        """Return ``cuda`` or ``cpu``; ``auto`` takes a GPU where there is one.

        Raises:
            SpecError: a GPU was asked for and there is none.
        """
        if wanted == "cuda" and not self.gpus:
            raise SpecError(
                f"device cuda was asked for, but torch sees no GPU on {self.name}; take the "
                "device cpu"
            )
        return "cuda" if self.gpus and wanted != "cpu" else "cpu"

    def choose_dtype(self, wanted: str, device: Device) -> Dtype:
        """Return the format of training's forward passes; ``auto`` takes the fast one."""
        if wanted != "auto":
            return "bfloat16" if wanted == "bfloat16" else "float32"
        fast = self.gpu_bfloat16 if device == "cuda" else self.cpu_bfloat16
        return "bfloat16" if fast else "float32"

    def check_gpus(self, num_workers: int) -> None:
        """Make sure that there is a GPU for each worker.

        Raises:
            SpecError: there are fewer.
        """
        if num_workers > self.gpus:
            raise SpecError(
                f"num_workers {num_workers} need a GPU each, and {self.name} has {self.gpus}; ask "
                "for fewer workers, or device cpu"
            )

    def threads_each(self, num_workers: int) -> int:
        """Share the cores evenly: threads of each worker, no more than a node has."""
        return min(self.cores, max(1, self.total_cores // num_workers))

    def workers_on_a_node(self, num_workers: int, threads: int) -> int:
        """Say how many of the workers share a node's memory at most."""
        return min(num_workers, max(1, self.cores // threads))

    def memory(self, device: Device) -> int:
        """Bytes that work on a node can have."""
        return self.gpu_bytes if device == "cuda" else self.free_bytes


def this_machine() -> Machine:
    """Ask the machine that this process runs on."""
    facts, cores = look_around(with_gpu=True), available_cores()
    return Machine(
        "this machine",
        cores,
        cores,
        facts.gpus,
        facts.free_bytes,
        facts.free_gpu_bytes,
        facts.cpu_bfloat16,
        facts.gpu_bfloat16,
    )


def machine_at(address: str | None, device: str) -> Machine:
    """Ask the cluster at an address, or this machine where there is none.

    Args:
        address: of a running Ray cluster.
        device: what was asked for: on a cluster with GPUs, anything but ``cpu`` asks a node that
            has one.

    Raises:
        NoRoomError: no node of the cluster offers cores or GPUs yet.
        OutOfReachError: no cluster answers there, or none of its nodes.
        BackendError: its nodes cannot run kdnas.
    """
    if address is None:
        return this_machine()
    from workers.cluster_machine import machine_of_cluster  # Ray is loaded where it is needed

    return machine_of_cluster(address, device)
