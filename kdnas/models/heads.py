"""Models with a head for a task: what they predict, and loading them as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kdnas.errors import TeacherError
from kdnas.models.teacher import TeacherHandle, load_weights

if TYPE_CHECKING:
    from torch import nn

KINDS: Final[Mapping[str, str]] = {
    "ForSequenceClassification": "classification",
    "ForTokenClassification": "tagging",
    "ForQuestionAnswering": "span",
}
"""End of the name of an architecture → what is predicted."""

SEVERAL_LABELS: Final = "multi_label_classification"
"""``problem_type`` of a configuration whose outputs say yes or no, each for itself."""


def kind_of_head(config: Any) -> str | None:
    """Say what a model with this configuration predicts; None of an encoder without a head."""
    names: Sequence[str] = config.architectures or ()
    for name in names:
        for end, kind in KINDS.items():
            if name.endswith(end):
                if (
                    kind == "classification"
                    and getattr(config, "problem_type", None) == SEVERAL_LABELS
                ):
                    return "multilabel"
                single = kind == "classification" and config.num_labels == 1
                return "regression" if single else kind
    return None


def load_with_head(handle: TeacherHandle) -> nn.Module:
    """Load a fine-tuned model in float32, frozen and in eval mode, with the head that it has.

    Raises:
        TeacherError: it has none, or the weights do not load, or lack something.
    """
    import transformers

    ends = [end for n in handle.config.architectures or () for end in KINDS if n.endswith(end)]
    if not ends:
        raise TeacherError(f"model {handle.ref!r} has no head; fine-tune it for a task first")
    model, missing = load_weights(getattr(transformers, f"AutoModel{ends[0]}"), handle)
    if missing:
        raise TeacherError(
            f"the weights of model {handle.ref!r} lack {len(missing)} tensors, {missing[0]} first; "
            "give a complete checkpoint"
        )
    return model.eval().requires_grad_(False)
