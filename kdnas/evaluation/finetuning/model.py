"""A model with the head that a task needs, and its tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from torch import nn

from kdnas.errors import TeacherError
from kdnas.evaluation.tasks.task import Task
from kdnas.models.families import family_of
from kdnas.models.heads import SEVERAL_LABELS
from kdnas.models.making import MAKING_MODELS
from kdnas.models.opening import load_tokenizer, put_space_before_words
from kdnas.models.precise import PreciseLinear
from kdnas.models.sequence.model import SequenceClassifier
from kdnas.models.sequence.saved import SequenceHandle
from kdnas.models.teacher import TeacherHandle, quiet_transformers

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True)
class TaskModel:
    """A model that answers a task's questions.

    Attributes:
        model: encoder and head, float32.
        tokenizer: of the model.
        inputs: names of the tensors that the model takes.
        max_length: tokens of the longest sequence that it has positions for.
    """

    model: nn.Module
    tokenizer: PreTrainedTokenizerFast
    inputs: frozenset[str]
    max_length: int

    def taken(self, encoded: Mapping[str, Any]) -> dict[str, Any]:
        """Leave out what the model does not take, such as types of tokens where it has one."""
        return {name: value for name, value in encoded.items() if name in self.inputs}


def load_task_model(
    handle: TeacherHandle,
    task: Task,
    labels: Sequence[str] | None,
    dropout: float,
    seed: int,
    *,
    centre: float = 0.0,
    fresh_head: bool = False,
    needs_head: bool = False,
) -> TaskModel:
    """Load an encoder and put the architecture's usual head for a task on it.

    The head, and a pooler that the folder lacks (students have none, nor have masked-LM models),
    start at random by ``seed``, the bias of the outputs at ``centre``; a head that the folder has
    is used if it fits and no fresh one is asked for.

    Args:
        handle: the model on this machine.
        task: what the head is for.
        labels: of a classification or a tagging task.
        dropout: of all layers, and of the head.
        seed: of fresh weights.
        centre: what a fresh head says of everything at first: of a regression, the mean of its
            numbers. From 0 a bias gets there by a learning rate a step, which takes a small rate
            thousands of steps, and until then the gradient speaks of little else.
        fresh_head: whether a head that the folder has is left there.
        needs_head: whether nothing may start at random, since nothing is learned any more.

    Raises:
        TeacherError: the weights do not load, or lack a part of the encoder, or of a head that is
            needed.
    """
    family = family_of(handle.shape.model_type)
    config = deepcopy(handle.config)
    # A head without a dropout of its own has the encoder's.
    own = [key for key in family.head_dropout_keys if getattr(config, key, None) is not None]
    for key in (*family.dropout_keys, *own):
        setattr(config, key, dropout)
    if labels is not None:
        config.id2label = dict(enumerate(labels))
        config.label2id = {label: i for i, label in enumerate(labels)}
    elif task.kind == "regression":
        config.num_labels = 1
    elif task.kind == "span":
        config.num_labels = 2  # a start and an end, whatever a head before had
    if task.kind == "regression":
        config.problem_type = "regression"
    elif task.kind == "classification":
        config.problem_type = "single_label_classification"
    elif task.kind == "multilabel":
        config.problem_type = SEVERAL_LABELS
    with MAKING_MODELS, torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.manual_seed(seed)
        try:
            model, report = _auto_class(task).from_pretrained(
                handle.folder,
                config=config,
                dtype=torch.float32,
                use_safetensors=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            reason = " ".join(str(error).split())[:160]
            raise TeacherError(
                f"the weights of model {handle.ref!r} do not load ({reason}); save the model "
                "again with save_pretrained"
            ) from None
    encoder = f"{model.base_model_prefix}."
    absent = {*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])}
    missing = sorted(k for k in absent if k.startswith(encoder) and ".pooler." not in k)
    if missing:
        raise TeacherError(
            f"the weights of model {handle.ref!r} lack {len(missing)} tensors of the encoder, "
            f"{missing[0]} first; give a complete {family.title} checkpoint"
        )
    if needs_head and absent:
        raise TeacherError(
            f"the weights of model {handle.ref!r} lack {len(absent)} tensors of its head, "
            f"{min(absent)} first, which would answer at random; give a complete checkpoint"
        )
    # Checkpoints of the training keep the names of this model: those of old BERTs (gamma, beta),
    # under which transformers would save it again, nobody renames who goes on from a checkpoint.
    model._weight_conversions = []
    name, output = _output(model, encoder)
    own_head = {key for key in model.state_dict() if not key.startswith(encoder)} - absent
    if fresh_head and own_head:
        _renew_head(model, encoder, task, seed)
    if f"{name}.bias" in absent or fresh_head:
        torch.nn.init.constant_(output.bias, centre)
    output.__class__ = PreciseLinear
    inputs = set(signature(model.forward).parameters)
    if handle.shape.type_vocab_size < 2:
        inputs.discard("token_type_ids")  # a pair's second part would have no embedding
    tokenizer = load_tokenizer(handle)
    if task.kind == "tagging":
        put_space_before_words(tokenizer)
    return TaskModel(model, tokenizer, frozenset(inputs), handle.longest_sequence)


def load_sequence_model(handle: SequenceHandle) -> TaskModel:
    """Load a Bi-LSTM or a gated CNN, which has its task's head.

    Raises:
        TeacherError: the weights do not load.
    """
    model = SequenceClassifier.from_pretrained(handle.folder, handle.ref)
    tokenizer = load_tokenizer(handle)
    return TaskModel(model, tokenizer, SequenceClassifier.inputs, handle.longest_sequence)


def _renew_head(model: nn.Module, encoder: str, task: Task, seed: int) -> None:
    """Put what a new model has outside of its encoder in place of what was loaded."""
    with MAKING_MODELS, torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.manual_seed(seed)
        fresh = _auto_class(task).from_config(model.config).state_dict()
    head = {key: value for key, value in fresh.items() if not key.startswith(encoder)}
    model.load_state_dict(head, strict=False)


def _output(model: nn.Module, encoder: str) -> tuple[str, nn.Linear]:
    """The map to the outputs, and its name: the last one outside of the encoder.

    The order of a model's parts does not tell: XLM-R has its head before its encoder.
    """
    *_, output = (
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and not name.startswith(encoder)
    )
    return output


def _auto_class(task: Task) -> Any:
    import transformers

    return {
        "classification": transformers.AutoModelForSequenceClassification,
        "multilabel": transformers.AutoModelForSequenceClassification,
        "regression": transformers.AutoModelForSequenceClassification,
        "tagging": transformers.AutoModelForTokenClassification,
        "span": transformers.AutoModelForQuestionAnswering,
    }[task.kind]
