"""Networks that answer a task's questions, read behind each of their layers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from kdnas.models.families import Family
from kdnas.models.first_token import FirstTokenPass
from kdnas.models.precise import PreciseLinear
from kdnas.models.sequence.pooling import AttentionSum
from kdnas.taskspecific.methods.base import NetworkShape
from kdnas.taskspecific.outputs import NetworkOutputs


class LayeredNetwork(Protocol):
    """A classifier, or a model of a regression, of several layers.

    Attributes:
        model: what is trained and saved.
        shape: layers and width.
    """

    model: nn.Module
    shape: NetworkShape

    def read(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, list[Any]]:
        """Run a batch: logits (B, K), and what a vector is made of behind each layer."""

    def words(self) -> nn.Embedding | None:
        """The table of word embeddings, if it is read by looking words up and in no other way."""

    def poolers(self) -> nn.ModuleList:
        """Make what turns that into a vector (B, D), a module for each inner layer."""


class TransformerNetwork:
    """A Transformer with a head; a layer's vector is the hidden state of the first token, [CLS].

    Args:
        model: encoder and head, as transformers makes them.
        family: of the encoder.
        taken: names of the inputs that the model takes; others are left out.
    """

    def __init__(self, model: nn.Module, family: Family, taken: Collection[str]) -> None:
        self.model, self._taken, self._family = model, taken, family
        encoder = model.get_submodule(str(model.base_model_prefix))
        layers = [*family.transformer_layers(encoder)]
        layers[-1] = family.encoder_output(encoder)
        config: Any = model.config
        width = int(family.axes(config)["hidden"])
        self.shape = NetworkShape(len(layers), width)
        self._first = FirstTokenPass(model, family) if FirstTokenPass.serves(family) else None
        self._kept: dict[int, Tensor] = {}
        for number, layer in enumerate(layers):
            layer.register_forward_hook(self._keep(number))

    def _keep(self, number: int) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            self._kept[number] = output[0] if isinstance(output, tuple) else output

        return hook

    def read(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, list[Any]]:
        """Logits, and the first token's state behind each layer, (B, D) each."""
        given = {name: tensor for name, tensor in inputs.items() if name in self._taken}
        mask = inputs["attention_mask"]
        if self._first is not None and FirstTokenPass.reads(mask):
            given.pop("attention_mask")
            return self._first(given, mask)
        logits = self.model(**given)["logits"]
        first = mask.argmax(1)  # padding may come first
        rows = torch.arange(len(first), device=first.device)
        states = [self._kept[number][rows, first] for number in range(self.shape.layers)]
        self._kept.clear()
        return logits, states

    def words(self) -> nn.Embedding | None:
        """That of the encoder."""
        encoder = self.model.get_submodule(str(self.model.base_model_prefix))
        table = encoder.get_submodule(self._family.words)
        return table if type(table) is nn.Embedding else None

    def poolers(self) -> nn.ModuleList:
        """The states are vectors already."""
        return nn.ModuleList(nn.Identity() for _ in range(self.shape.layers - 1))


class SequenceNetwork:
    """A Bi-LSTM or a gated CNN; inner layers are pooled by attention sums of their own.

    The paper pools the last layer alone (Wu et al. 2021, §5.5), and does not say what the
    pseudo-classifiers behind the others read: here each has its own pooling of the same kind,
    learned with the student and thrown away with the pseudo-classifier.

    Args:
        model: a :class:`~kdnas.models.sequence.model.SequenceClassifier`.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        config: Any = model.config
        self.shape = NetworkShape(config.layers, config.hidden, transformer=False)
        self._pooled: Tensor | None = None
        model.get_submodule("pooling").register_forward_hook(self._keep)

    def _keep(self, module: nn.Module, inputs: Any, output: Tensor) -> None:
        self._pooled = output  # the newest alone: others may run the model as well

    def read(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, list[Any]]:
        """Logits; states (B, T, H) and mask (B, T) behind inner layers, the last one's vector."""
        mask = inputs["attention_mask"]
        output = self.model(inputs["input_ids"], mask)
        *inner, _ = output.hidden_states
        pooled, self._pooled = self._pooled, None
        return output.logits, [*((states, mask.bool()) for states in inner), pooled]

    def words(self) -> nn.Embedding | None:
        """None is trained."""
        return None

    def poolers(self) -> nn.ModuleList:
        """An attention sum for each inner layer."""
        return nn.ModuleList(
            _Pooled(AttentionSum(self.shape.width)) for _ in range(self.shape.layers - 1)
        )


class _Pooled(nn.Module):
    def __init__(self, pooling: nn.Module) -> None:
        super().__init__()
        self.pooling = pooling

    def forward(self, layer: tuple[Tensor, Tensor]) -> Tensor:
        pooled: Tensor = self.pooling(*layer)
        return pooled


class TaskStudent(nn.Module):
    """A student with pseudo-classifiers behind its inner layers, where a method needs them.

    W_j^s of Eq. 3, with a bias, trained with the student (Wu et al. 2021, §4.1) and thrown away.

    Args:
        network: the student.
        outputs: K.
        classifies_layers: whether there are pseudo-classifiers.
        reads_states: whether states are handed out.
        seed: of the pseudo-classifiers.
        centre: what all of them say at first: of a regression the mean of its numbers, which a
            small rate would take thousands of steps to get to.
    """

    def __init__(
        self,
        network: LayeredNetwork,
        outputs: int,
        *,
        classifies_layers: bool,
        reads_states: bool,
        seed: int,
        centre: float = 0.0,
    ) -> None:
        super().__init__()
        self.network = network
        self.model = network.model
        self.classifies_layers, self.reads_states = classifies_layers, reads_states
        shape = network.shape
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            needed = classifies_layers or reads_states
            self.poolers = network.poolers() if needed else nn.ModuleList()
            count = shape.layers - 1 if classifies_layers else 0
            self.classifiers = nn.ModuleList(
                PreciseLinear(shape.width, outputs) for _ in range(count)
            )
        for classifier in self.classifiers:
            nn.init.constant_(classifier.bias, centre)  # type: ignore[arg-type]

    def forward(self, inputs: Mapping[str, Tensor], *, logits_only: bool = False) -> NetworkOutputs:
        """Run a batch of inputs (B, T).

        Args:
            inputs: as the student takes them.
            logits_only: whether nobody reads it behind its inner layers now, so that what is beside
                the student is not run. No dropout is drawn there: the logits stay the same.
        """
        logits, read = self.network.read(inputs)
        if logits_only or not (self.classifies_layers or self.reads_states):
            return NetworkOutputs(logits)
        inner = [pool(layer) for pool, layer in zip(self.poolers, read, strict=False)]
        layers = None
        if self.classifies_layers:
            said = [
                classify(state) for classify, state in zip(self.classifiers, inner, strict=True)
            ]
            layers = torch.stack([*said, logits], 1)  # (B, M, K)
        states = torch.stack([*inner, read[-1]], 1) if self.reads_states else None
        return NetworkOutputs(logits, layers, states)

    def thrown_away(self) -> list[nn.Parameter]:
        """Parameters that are learned beside the student."""
        return [*self.poolers.parameters(), *self.classifiers.parameters()]
