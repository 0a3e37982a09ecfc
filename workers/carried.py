"""A model and the data of a task, on their way to a worker."""

from __future__ import annotations

from dataclasses import dataclass, replace

import ray

from kdnas.evaluation.tasks.examples import TaskData
from kdnas.models.teacher import TeacherHandle, open_teacher, prepare_teacher
from kdnas.settings import Settings
from kdnas.store import Store


@dataclass(frozen=True)
class Carried:
    """What a fine-tuning works with.

    Attributes:
        model: as the driver has it.
        data: of the task.
        store_url: where other nodes fetch the model, which is there if the cluster has any.
        node: id of the driver's node.
    """

    model: TeacherHandle
    data: TaskData
    store_url: str
    node: str

    @classmethod
    def from_here(cls, model: TeacherHandle, data: TaskData, store_url: str) -> Carried:
        """Pack for workers; the process is connected to Ray."""
        return cls(model, data, store_url, this_node())

    def model_here(self) -> TeacherHandle:
        """Return the model on the worker's own node."""
        return handle_here(self.model, self.node, self.store_url)


def handle_here(handle: TeacherHandle, node: str, store_url: str) -> TeacherHandle:
    """Return a model on the worker's own node.

    Args:
        handle: as the driver has it.
        node: id of the driver's node.
        store_url: where other nodes fetch it, which is there if the cluster has any.
    """
    if this_node() == node:
        return handle
    store = Store(store_url, Settings.from_environment().home / "cache")
    found = open_teacher(handle.fingerprint, store)
    return replace(handle, folder=found.folder, sentences=found.sentences)


def put_into_store(handle: TeacherHandle, store_url: str) -> None:
    """Put a model where :func:`handle_here` finds it on other nodes; nothing if it is there."""
    cache = Settings.from_environment().home / "cache"
    prepare_teacher(str(handle.folder), Store(store_url, cache))


def this_node() -> str:
    """Return the id of the node that this process is on."""
    node: str = ray.get_runtime_context().get_node_id()
    return node
