"""What the teacher says of the examples: computed once for all of them, or batch by batch.

A teacher in eval mode says the same of an example each time, up to the rounding that comes from
how long its batch is padded. So its outputs can be kept over all epochs, methods and seeds: K
numbers a layer and example, and D more where hidden states are matched.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkstemp
from typing import Protocol

import torch
from torch import Tensor, nn

from kdnas.distill.numerics import Device, autocast
from kdnas.errors import StoreError
from kdnas.taskspecific.examples import Examples, TaskBatch
from kdnas.taskspecific.networks import LayeredNetwork
from kdnas.taskspecific.outputs import NetworkOutputs
from kdnas.taskspecific.pseudo_classifiers import PseudoClassifiers

BATCH_SIZE, ROWS = 64, 1024
IN_MEMORY_BYTES = 2**30
"""States that take more go to a file, which the operating system keeps in memory as it can."""


class TeacherOutputs(Protocol):
    """A teacher to learn from."""

    def of(self, batch: TaskBatch) -> NetworkOutputs:
        """What it says of a batch, on the batch's device, without gradient."""


@dataclass(frozen=True)
class RunningTeacher:
    """A teacher that is run on every batch, once for all who ask about the same one.

    Attributes:
        network: the teacher, frozen, in eval mode, on the device.
        device: where it runs.
        dtype: of its matrix products.
        classifiers: its pseudo-classifiers, where they are needed; on the device.
        reads_states: whether the states of its layers are handed out; those of a network whose
            layers are no vectors (:class:`~kdnas.taskspecific.networks.SequenceNetwork`) cannot be.
    """

    network: LayeredNetwork
    device: Device
    dtype: str
    classifiers: PseudoClassifiers | None = None
    reads_states: bool = True

    def of(self, batch: TaskBatch) -> NetworkOutputs:
        """Run the teacher."""
        with torch.no_grad(), autocast(self.device, self.dtype):
            logits, states = self.network.read(batch.inputs)
        if not self.reads_states:
            return NetworkOutputs(logits.float())
        vectors = torch.stack([state.float() for state in states], 1)  # (B, N, D)
        with torch.no_grad():
            layers = None if self.classifiers is None else self.classifiers(vectors)
        return NetworkOutputs(logits.float(), layers, vectors)


def running_teacher(
    network: LayeredNetwork,
    device: Device,
    dtype: str,
    classifiers: PseudoClassifiers | None = None,
) -> RunningTeacher:
    """Let a network be asked: frozen, in eval mode, on a device, its products ready in a format.

    In bfloat16 the matrices are rounded here, once, and not by each pass; they come out the same.

    Args:
        network: a classifier that nobody trains or saves any more.
        device: where it is to run.
        dtype: of its matrix products.
        classifiers: its pseudo-classifiers, where they are needed.
    """
    network.model.to(device).eval().requires_grad_(False)
    if dtype == "bfloat16":
        for module in network.model.modules():
            if type(module) is nn.Linear:  # a precise one stays as it is
                module.to(torch.bfloat16)
    return RunningTeacher(network, device, dtype, classifiers)


@dataclass(frozen=True)
class KeptTeacher:
    """What a teacher has said of all examples.

    Attributes:
        logits: (E, K).
        layers: (E, N, K) of the pseudo-classifiers; None before they are there.
        states: (E, N, D); None where nobody needs them any more.
    """

    logits: Tensor
    layers: Tensor | None = None
    states: Tensor | None = None

    def of(self, batch: TaskBatch) -> NetworkOutputs:
        """Look a batch up."""
        rows, device = torch.from_numpy(batch.indices), batch.labels.device
        kept = (self.logits, self.layers, self.states)
        logits, layers, states = (None if t is None else t[rows].to(device) for t in kept)
        assert logits is not None
        return NetworkOutputs(logits, layers, states)

    def without_states(self) -> KeptTeacher:
        """The same without the vectors of the layers."""
        return KeptTeacher(self.logits, self.layers)

    def with_layers(self, classifiers: PseudoClassifiers) -> KeptTeacher:
        """The same with what pseudo-classifiers make of the states."""
        if self.states is None:
            raise ValueError("pseudo-classifiers need the states of the teacher's layers")
        parts = [classifiers(part) for part in torch.split(self.states, ROWS)]
        return KeptTeacher(self.logits, torch.cat(parts), self.states)


def run_over(
    teacher: RunningTeacher,
    examples: Examples,
    scratch: Path,
    on_batch: Callable[[int, int], None] = lambda *_: None,
) -> KeptTeacher:
    """Run a teacher once over all examples.

    Args:
        teacher: to run.
        examples: E of them.
        scratch: a folder for states that are too many for memory.
        on_batch: is told how many examples are done, and how many there are; may end it by an
            exception.

    Returns:
        Logits, and states where the teacher hands them out, on the CPU.

    Raises:
        StoreError: there is no room for them on the disk.
    """
    logits: Tensor | None = None
    states: Tensor | None = None
    done = 0
    for indices in examples.in_order(BATCH_SIZE):
        said = teacher.of(examples.batch(indices).to(teacher.device))
        if logits is None:
            logits = torch.empty(len(examples), said.logits.shape[1])
            if said.states is not None:
                states = _room(len(examples), *said.states.shape[1:], scratch=scratch)
        rows = torch.from_numpy(indices)
        logits[rows] = said.logits.cpu()
        if states is not None:
            states[rows] = said.states_needed().cpu()
        done += len(indices)
        on_batch(done, len(examples))
    if logits is None:
        raise ValueError("there are no examples to run a teacher over")
    return KeptTeacher(logits, None, states)


def states_bytes(examples: int, layers: int, width: int) -> int:
    """Bytes that the states of a teacher's layers take for so many examples."""
    return 4 * examples * layers * width


def _room(examples: int, layers: int, width: int, *, scratch: Path) -> Tensor:
    if states_bytes(examples, layers, width) <= IN_MEMORY_BYTES:
        return torch.empty(examples, layers, width)
    size = states_bytes(examples, layers, width)
    handle, file = mkstemp(".states", dir=scratch)
    try:
        os.posix_fallocate(
            handle, 0, size
        )  # a full disk would end a write into a mapping by SIGBUS
    except OSError as error:
        raise StoreError(
            f"{size / 1e9:.1f} GB for what the teacher's layers say could not be had in {scratch} "
            f"({error.strerror}); free space there, or set KDNAS_HOME to a folder with more"
        ) from None
    finally:
        os.close(handle)
    room = torch.from_file(file, shared=True, size=examples * layers * width, dtype=torch.float32)
    Path(file).unlink()  # the mapping keeps it, and nothing is left when the process is killed
    return room.view(examples, layers, width)
