"""The encoder families: what each one calls its parts. The only place with their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from kdnas.architecture import Architecture
from kdnas.errors import TeacherError


@dataclass(frozen=True, slots=True)
class Family:
    """One ``model_type`` of transformers.

    Attributes:
        model_type: Hugging Face name of the family.
        title: its usual name, for messages.
        config_keys: our axis → the family's configuration key.
        dropout_keys: configuration keys of all dropout probabilities.
        layers: attribute path to the list of transformer layers.
        silent: paths inside a layer to the matrices that end its two residual branches.
        projection_paths: paths inside a layer to the projections of Q, K and V, or the one path
            to a fused projection.
        has_pooler: whether the model takes ``add_pooling_layer``.
        factorised_embedding: whether a configuration may give the embedding its own width.
        words: path to the embedding of words.
        positions: path to the embedding of positions; None where positions are rotary.
        final: path to the module that gives the encoder's output; None where the last layer does.
        padded_positions: whether positions count from the padding token's id on, which makes the
            longest sequence shorter than the table of positions.
    """

    model_type: str
    title: str
    config_keys: Mapping[str, str]
    dropout_keys: tuple[str, ...]
    layers: str
    silent: tuple[str, str]
    projection_paths: tuple[str, ...]
    has_pooler: bool
    factorised_embedding: bool = False
    words: str = "embeddings.word_embeddings"
    positions: str | None = "embeddings.position_embeddings"
    final: str | None = None
    padded_positions: bool = False

    def transformer_layers(self, model: nn.Module) -> nn.ModuleList:
        """Return the list of layers, first layer first."""
        layers = model.get_submodule(self.layers)
        if not isinstance(layers, nn.ModuleList):
            raise TypeError(f"{self.layers} of {self.model_type} is no ModuleList")
        return layers

    def set_layers(self, model: nn.Module, layers: nn.ModuleList) -> None:
        """Give the model another list of layers; those left out are not run."""
        parent, _, name = self.layers.rpartition(".")
        setattr(model.get_submodule(parent), name, layers)

    def config_values(self, architecture: Architecture) -> dict[str, Any]:
        """Return the configuration entries that make a student of this architecture."""
        values = {key: getattr(architecture, axis) for axis, key in self.config_keys.items()}
        if self.factorised_embedding:
            values["embedding_size"] = architecture.hidden
        return values

    def model_options(self) -> dict[str, Any]:
        """Options of the model's constructor that leave out the pooler."""
        return {"add_pooling_layer": False} if self.has_pooler else {}

    def projections(
        self, layer: nn.Module
    ) -> Iterator[tuple[Literal["q", "k", "v"], nn.Module, int | None]]:
        """Yield the projections of a layer: name, module, and which third of a fused output."""
        names: tuple[Literal["q", "k", "v"], ...] = ("q", "k", "v")
        fused = len(self.projection_paths) == 1
        for part, name in enumerate(names):
            path = self.projection_paths[0 if fused else part]
            yield name, layer.get_submodule(path), part if fused else None

    def embedding_output(self, model: nn.Module) -> nn.Module:
        """Return the module whose output is layer 0; ELECTRA widens its embeddings afterwards."""
        projection = getattr(model, "embeddings_project", None)
        return (
            projection if isinstance(projection, nn.Module) else model.get_submodule("embeddings")
        )

    def encoder_output(self, model: nn.Module) -> nn.Module:
        """Return the module whose output is that of the last layer and of the encoder."""
        return model.get_submodule(self.final) if self.final else self.transformer_layers(model)[-1]

    def word_embeddings(self, model: nn.Module) -> nn.Parameter:
        """Return the table of word embeddings, (V, E); E is the width unless factorised."""
        return model.get_parameter(f"{self.words}.weight")

    def position_embeddings(self, model: nn.Module) -> nn.Parameter | None:
        """Return the table of position embeddings, (P, E); None where positions are rotary."""
        return model.get_parameter(f"{self.positions}.weight") if self.positions else None

    def input_embeddings(self, model: nn.Module) -> tuple[Tensor, Tensor]:
        """Word and position embeddings in the width of the layers.

        A factorised embedding (ELECTRA) is multiplied out, so that both come back as (V, D) and
        (P, D); P is 0 where positions are rotary.
        """
        words = self.word_embeddings(model).detach()
        table = self.position_embeddings(model)
        positions = words[:0] if table is None else table.detach()
        projection = getattr(model, "embeddings_project", None)
        if isinstance(projection, nn.Linear):
            weight = projection.weight.detach()
            return words @ weight.T, positions @ weight.T
        return words, positions


_BERT_KEYS = {
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "hidden": "hidden_size",
    "intermediate": "intermediate_size",
    "activation": "hidden_act",
}
_BERT_DROPOUT = ("hidden_dropout_prob", "attention_probs_dropout_prob")
_BERT_SILENT = ("attention.output.dense", "output.dense")
_BERT_PROJECTIONS = ("attention.self.query", "attention.self.key", "attention.self.value")

FAMILIES: dict[str, Family] = {
    family.model_type: family
    for family in (
        Family(
            "bert",
            "BERT",
            _BERT_KEYS,
            _BERT_DROPOUT,
            "encoder.layer",
            _BERT_SILENT,
            _BERT_PROJECTIONS,
            has_pooler=True,
        ),
        Family(
            "roberta",
            "RoBERTa",
            _BERT_KEYS,
            _BERT_DROPOUT,
            "encoder.layer",
            _BERT_SILENT,
            _BERT_PROJECTIONS,
            has_pooler=True,
            padded_positions=True,
        ),
        Family(
            "xlm-roberta",
            "XLM-R",
            _BERT_KEYS,
            _BERT_DROPOUT,
            "encoder.layer",
            _BERT_SILENT,
            _BERT_PROJECTIONS,
            has_pooler=True,
            padded_positions=True,
        ),
        Family(
            "electra",
            "ELECTRA",
            _BERT_KEYS,
            _BERT_DROPOUT,
            "encoder.layer",
            _BERT_SILENT,
            _BERT_PROJECTIONS,
            has_pooler=False,
            factorised_embedding=True,
        ),
        Family(
            "distilbert",
            "DistilBERT",
            {
                "layers": "n_layers",
                "heads": "n_heads",
                "hidden": "dim",
                "intermediate": "hidden_dim",
                "activation": "activation",
            },
            ("dropout", "attention_dropout"),
            "transformer.layer",
            ("attention.out_lin", "ffn.lin2"),
            ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
            has_pooler=False,
        ),
    )
}


def family_of(model_type: str) -> Family:
    """Look up a family.

    Raises:
        TeacherError: the family is not supported; the message lists those that are.
    """
    try:
        return FAMILIES[model_type]
    except KeyError:
        works = ", ".join(f"{f.title} ({f.model_type})" for f in FAMILIES.values())
        raise TeacherError(
            f"teachers of model type {model_type!r} are not supported; these are: {works}"
        ) from None
