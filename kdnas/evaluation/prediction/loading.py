"""``kdnas.load``: a model folder as something to call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import nn

from kdnas.distill.numerics import choose_device
from kdnas.errors import RequestError
from kdnas.evaluation.prediction.inputs import example_of
from kdnas.evaluation.prediction.predictor import Answer, Predictor, find_saved
from kdnas.models.heads import kind_of_head
from kdnas.models.opening import load_model, load_tokenizer, prepare_model

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

ENCODER = "encoder"
"""Kind of a model without a head."""
PAIR_BY = "pairs=[…]"
"""How second texts are given here."""


@dataclass(frozen=True)
class LoadedModel:
    """A model that :func:`kdnas.load` has opened; call it with texts to have answers.

    Attributes:
        model: in eval mode, on its device: an encoder without a head, or a model with one, whose
            output has ``logits`` (spans: ``start_logits`` and ``end_logits``).
        tokenizer: of the model.
        kind: ``classification``, ``regression``, ``tagging``, ``span``, or ``encoder``, which has
            no head and answers nothing.
        labels: of a classification or a tagging task, in the order of the outputs; else None.
        max_length: tokens of the longest input: longer texts are cut, and contexts of questions
            read in windows.
    """

    model: nn.Module
    tokenizer: PreTrainedTokenizerFast
    kind: str
    labels: tuple[str, ...] | None
    max_length: int
    _predictor: Predictor | None = field(default=None, repr=False, compare=False)

    def __call__(
        self, texts: str | Sequence[str], pairs: str | Sequence[str] | None = None
    ) -> list[Answer]:
        """Answer texts, in their order.

        Args:
            texts: one, or several; of a span task, questions.
            pairs: second texts, as many; of a span task, contexts.

        Returns:
            An answer each: ``value`` is a label (with its ``probability``), a number, the tags of
            the words, or the text of an answer.

        Raises:
            RequestError: the model has no head, there are not as many pairs as texts, or the model
                learned from pairs and there are none, or the other way round.
            TaskDataError: a question without a context, or something that is no text.
        """
        if self._predictor is None:
            raise RequestError(
                "this model is an encoder without a head and answers nothing; run its model and "
                "tokenizer, or fine-tune it with kdnas evaluate --save-models DIR and load that"
            )
        firsts = [texts] if isinstance(texts, str) else list(texts)
        seconds: list[str] | list[None] = [None] * len(firsts)
        if pairs is not None:
            seconds = [pairs] if isinstance(pairs, str) else list(pairs)
        if len(seconds) != len(firsts):
            raise RequestError(
                f"there are {len(firsts)} texts and {len(seconds)} pairs; give one pair a text"
            )
        examples = (
            example_of(self.kind, str(place), first, second, f"text {place}", PAIR_BY)
            for place, (first, second) in enumerate(zip(firsts, seconds, strict=True))
        )
        return list(self._predictor(examples))


def load_folder(
    folder: str | os.PathLike[str], task: str | None = None, device: str = "auto"
) -> LoadedModel:
    """Open a model; see :func:`kdnas.load`."""
    handle = prepare_model(find_saved(os.fspath(folder), task))
    if kind_of_head(handle.config) is None:
        model = load_model(handle).to(choose_device(device))
        return LoadedModel(model, load_tokenizer(handle), ENCODER, None, handle.longest_sequence)
    predictor = Predictor(handle, device, pair_by=PAIR_BY)
    made = predictor.task_model
    return LoadedModel(
        made.model,
        made.tokenizer,
        predictor.kind,
        predictor.labels,
        predictor.max_length,
        predictor,
    )
