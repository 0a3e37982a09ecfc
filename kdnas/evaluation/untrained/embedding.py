"""Texts as vectors, by a model as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from kdnas.distill.numerics import Device, autocast, choose_device, num_threads
from kdnas.evaluation.finetuning.int8 import in_int8
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.models.opening import load_tokenizer
from kdnas.models.pooling import Pooling, pooling_of
from kdnas.models.sentence_texts import TextForm, text_form_of
from kdnas.models.teacher import TeacherHandle, load_teacher_model, quiet_transformers


class Embedder:
    """A model that embeds texts as its own files say, else by the mean of their tokens' states.

    Attributes:
        pooling: how (Reimers and Gurevych 2019).
        notes: what a reader of scores should know of it.
    """

    def __init__(
        self,
        model: TeacherHandle,
        encoder: nn.Module,
        pooling: Pooling,
        form: TextForm,
        settings: FinetuneSettings,
        device: Device,
    ) -> None:
        self.pooling = pooling
        self.notes = (_pooling_note(pooling), *form.notes)
        self._form = form
        self._settings, self._device = settings, device
        self._model = encoder.to(device)
        self._tokenizer = load_tokenizer(model)

    def __call__(
        self,
        texts: Sequence[str],
        on_done: Callable[[int], None] = lambda _: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Tensor | None:
        """Embed N texts, those of a length together: (N, D) of length 1, on the CPU.

        Args:
            texts: one at least.
            on_done: is told how many there are, batch by batch.
            should_stop: asked between batches.

        Returns:
            The vectors, or None if it was stopped.
        """
        order = sorted(range(len(texts)), key=lambda place: -len(texts[place]))
        size = self._settings.batch_size
        found: list[Tensor] = []
        for start in range(0, len(texts), size):
            if should_stop():
                return None
            found.append(self._embedded([texts[place] for place in order[start : start + size]]))
            on_done(min(start + size, len(texts)))
        return torch.cat(found)[torch.tensor(order).argsort()]

    def _embedded(self, texts: list[str]) -> Tensor:
        encoded: Any = self._tokenizer(
            [self._form(text) for text in texts],
            truncation=True,
            max_length=self._form.longest,
            padding="longest",
            return_tensors="pt",
        ).to(self._device)
        ids, mask = encoded["input_ids"], encoded["attention_mask"]
        with torch.inference_mode(), autocast(self._device, self._settings.dtype):
            states = self._model(input_ids=ids, attention_mask=mask)["last_hidden_state"]
        return nn.functional.normalize(self.pooling(states.float(), mask), dim=-1).cpu()


@contextmanager
def embedder(
    model: TeacherHandle,
    settings: FinetuneSettings,
    *,
    device: str = "auto",
    threads: int | None = None,
    int8: bool = False,
) -> Iterator[Embedder]:
    """Load a model to embed texts with, for the time of a ``with`` block.

    Args:
        model: on this machine.
        settings: of which the batch size, the longest text and the number format count.
        device: ``auto``, ``cpu`` or ``cuda``.
        threads: intra-op threads on a CPU; None leaves them as they are.
        int8: quantise the weights.

    Raises:
        TeacherError: the model does not load, or embeds in a way that is not known here.
    """
    pooling, form = pooling_of(model), text_form_of(model, settings.max_length)
    with ExitStack() as machine:
        if threads is not None:
            machine.enter_context(num_threads(threads))
        machine.enter_context(quiet_transformers())
        encoder = load_teacher_model(model)
        if int8:
            inputs, outputs = frozenset({"input_ids", "attention_mask"}), ("last_hidden_state",)
            quantised = in_int8(encoder, inputs, outputs, model.ref)
            encoder, device = machine.enter_context(quantised)[0], "cpu"
        yield Embedder(model, encoder, pooling, form, settings, choose_device(device))


def _pooling_note(pooling: Pooling) -> str:
    how = f"{pooling}{'' if pooling.configured else ', since none is configured'}"
    return f"cosine of sentence embeddings, without fine-tuning; pooling: {how}"
