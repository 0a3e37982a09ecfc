"""kdnas: neural architecture search for knowledge distillation.

The library behind the command line, the workers and the service. It loads neither Ray nor a web
framework, and this module no torch; see ``docs/architecture.md`` for the rooms of the house and who
may import whom.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    from kdnas.evaluation.prediction.loading import LoadedModel

__version__ = "0.1.0"

ENGINE_VERSION = "7"
"""Changes whenever the same request would give other losses; part of every loss's context."""


def load(
    folder: str | os.PathLike[str], task: str | None = None, device: str = "auto"
) -> LoadedModel:
    """Open a model that kdnas made, or any other of a family that it knows.

    ::

        model = kdnas.load("./rte-student")
        for answer in model(["It rained."], pairs=["The street was wet."]):
            print(answer.value, answer.probability)

    It may be a fine-tuned model, a Bi-LSTM or a gated CNN, or an encoder without a head, which
    answers nothing, but whose ``model`` and ``tokenizer`` are there to be run.

    Args:
        folder: with ``config.json``, safetensors weights and a tokenizer; or an alias, or a hub id.
        task: which one, of a folder with models of several tasks (``kdnas evaluate
            --save-models``).
        device: ``auto``, ``cpu`` or ``cuda``.

    Returns:
        Model, tokenizer, labels, and a call that answers texts.

    Raises:
        kdnas.errors.TeacherError: there is no model, or not a whole one, or one of an unknown kind.
        kdnas.errors.RequestError: the folder has several tasks and none is named, or not this one.
    """
    from kdnas.evaluation.prediction.loading import load_folder

    return load_folder(folder, task, device)
