"""Similarity of sentences by the cosine of their embeddings, without fine-tuning."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from kdnas.distill.numerics import autocast, choose_device, num_threads
from kdnas.errors import TaskDataError
from kdnas.evaluation.finetuning.int8 import INT8_NOTE, in_int8
from kdnas.evaluation.finetuning.training import FinetuneProgress, OnProgress
from kdnas.evaluation.results import Prediction, TaskResult, main_score
from kdnas.evaluation.scoring.judging import judge
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.evaluation.tasks.examples import Example, TaskData, TextExample
from kdnas.models.pooling import Pooling, pooling_of
from kdnas.models.teacher import TeacherHandle, load_teacher_model, quiet_transformers


def score_by_cosine(
    model: TeacherHandle,
    data: TaskData,
    settings: FinetuneSettings,
    *,
    device: str = "auto",
    threads: int | None = None,
    int8: bool = False,
    on_progress: OnProgress = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> TaskResult | None:
    """Score a model's sentence embeddings on a task of similar sentences.

    Sentences are embedded as the model's own files say, else by the mean of the states of their
    tokens (Reimers and Gurevych 2019). The cosine of a pair stands for its similarity, on
    another scale: correlations do not mind, and the score of an example is how far its rank among
    all pairs is from the right one, negative, as a share of their number.

    Args:
        model: on this machine.
        data: pairs of texts with numbers; there is nothing to train.
        settings: of which the batch size, the longest text and the number format count.
        device: ``auto``, ``cpu`` or ``cuda``.
        threads: intra-op threads on a CPU; None leaves them as they are.
        int8: quantise the weights.
        on_progress: is told how it goes.
        should_stop: asked between batches.

    Returns:
        The result, or None if it was stopped.

    Raises:
        TeacherError: the model does not load, or pools in a way that is not known here.
        TaskDataError: an example has no second text.
    """
    began = time.monotonic()
    pooling = pooling_of(model)
    predictions: dict[str, tuple[Prediction, ...]] = {}
    with ExitStack() as machine:
        if threads is not None:
            machine.enter_context(num_threads(threads))
        machine.enter_context(quiet_transformers())
        encoder = load_teacher_model(model)
        if int8:
            inputs, outputs = frozenset({"input_ids", "attention_mask"}), ("last_hidden_state",)
            quantised = in_int8(encoder, inputs, outputs, model.ref)
            encoder, device = machine.enter_context(quantised)[0], "cpu"
        embedder = _Embedder(model, encoder, pooling, settings, device)
        for name, examples in data.evaluations.items():
            pairs = [_pair(example, data) for example in examples]
            cosines: list[float] = []
            for start in range(0, len(pairs), settings.batch_size):
                if should_stop():
                    return None
                batch = pairs[start : start + settings.batch_size]
                first, second = (embedder([pair[i] for pair in batch]) for i in (0, 1))
                cosines += torch.cosine_similarity(first, second).tolist()
                on_progress(FinetuneProgress(name, len(cosines), len(pairs)))
            predictions[name] = _predictions(examples, cosines)
    metrics = {
        name: judge(data.task, predictions[name], examples)
        for name, examples in data.evaluations.items()
    }
    how = f"{pooling}{'' if pooling.configured else ', since none is configured'}"
    return TaskResult(
        task=data.task.name,
        suite=data.task.suite,
        seed=0,
        settings=settings,
        metrics=metrics,
        main=main_score(data.task, metrics),
        seconds=time.monotonic() - began,
        steps=0,
        train_examples=0,
        official_split=True,
        sources=data.sources,
        notes=(
            f"cosine of sentence embeddings, without fine-tuning; pooling: {how}",
            *([INT8_NOTE] if int8 else []),
        ),
        predictions=predictions,
    )


class _Embedder:
    """Texts to vectors, (B, D), on the CPU."""

    def __init__(
        self,
        model: TeacherHandle,
        encoder: nn.Module,
        pooling: Pooling,
        settings: FinetuneSettings,
        device: str,
    ) -> None:
        from transformers import AutoTokenizer

        self._device = choose_device(device)
        self._model = encoder.to(self._device)
        self._tokenizer = AutoTokenizer.from_pretrained(model.folder, trust_remote_code=False)
        self._pooling, self._dtype = pooling, settings.dtype
        self._max_length = min(settings.max_length, model.longest_sequence)

    def __call__(self, texts: Sequence[str]) -> Tensor:
        encoded = self._tokenizer(
            list(texts),
            truncation=True,
            max_length=self._max_length,
            padding="longest",
            return_tensors="pt",
        ).to(self._device)
        ids, mask = encoded["input_ids"], encoded["attention_mask"]
        with torch.inference_mode(), autocast(self._device, self._dtype):
            states = self._model(input_ids=ids, attention_mask=mask)["last_hidden_state"]
        return self._pooling(states.float(), mask).cpu()


def _pair(example: Example, data: TaskData) -> tuple[str, str]:
    if not isinstance(example, TextExample) or example.pair is None:
        raise TaskDataError(
            f"example {example.id!r} of {data.task.name} has no second text; check the files "
            f"{', '.join(data.sources)}"
        )
    return example.text, example.pair


def _predictions(examples: Sequence[Example], cosines: Sequence[float]) -> tuple[Prediction, ...]:
    from scipy.stats import rankdata

    labels = [e.number for e in examples if isinstance(e, TextExample)]
    distances = abs(rankdata(cosines) - rankdata(labels)) / len(examples)
    return tuple(
        Prediction(example.id, cosine, -float(distance), label, example.asked())
        for example, cosine, distance, label in zip(
            examples, cosines, distances, labels, strict=True
        )
    )
