"""A model and the data of a task, on their way to a worker."""

from __future__ import annotations

from dataclasses import dataclass, replace

import ray

from kdnas.evaluation.tasks.examples import TaskData
from kdnas.models.teacher import TeacherHandle, open_teacher
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
        if this_node() == self.node:
            return self.model
        store = Store(self.store_url, Settings.from_environment().home / "cache")
        found = open_teacher(self.model.fingerprint, store)
        return replace(self.model, folder=found.folder, sentences=found.sentences)


def this_node() -> str:
    """Return the id of the node that this process is on."""
    node: str = ray.get_runtime_context().get_node_id()
    return node
