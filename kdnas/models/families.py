"""The encoder families: what each one calls its parts. The only place with their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from torch import Tensor, nn

from kdnas.architecture import Architecture
from kdnas.errors import TeacherError
from kdnas.records import TeacherShape

if TYPE_CHECKING:
    from transformers import PretrainedConfig


@dataclass(frozen=True, slots=True)
class LMHeadNames:
    """What a family calls the parts of its masked-LM head, and where its configuration has them.

    Attributes:
        dense: path to the dense layer in a masked-LM model.
        norm: path to its layer norm.
        decoder: path to the product with the word embeddings.
        biases: paths to the decoder's bias; the first one that a checkpoint has.
        activation: configuration key; None where it is GELU whatever the configuration says.
        layer_norm_eps: configuration key; None where it is 1e-12.
        optional: our name of a bias → configuration key that says whether there is one.
    """

    dense: str
    norm: str
    decoder: str
    biases: tuple[str, ...]
    activation: str | None = None
    layer_norm_eps: str | None = "layer_norm_eps"
    optional: Mapping[str, str] = field(default_factory=dict)


class Rotary(NamedTuple):
    """How a layer turns its queries and keys by their positions.

    Attributes:
        frequencies: (d_h / 2,) radians a token, of each plane of a head.
        scaling: by which both are multiplied as well, such as YaRN's; 1 without.
    """

    frequencies: Tensor
    scaling: float


@dataclass(frozen=True, slots=True)
class Family:
    """One ``model_type`` of transformers.

    Queries, keys and values are the outputs of the layer's projections. Where positions are rotary
    (ModernBERT), that is before they are turned: relations between tokens then compare what tokens
    say, and not how far apart they stand.

    Attributes:
        model_type: Hugging Face name of the family.
        title: its usual name, for messages.
        config_keys: our axis → the family's configuration key.
        dropout_keys: configuration keys of the dropout probabilities of the encoder.
        layers: attribute path to the list of transformer layers.
        silent: paths inside a layer to the matrices that end its two residual branches.
        inner: path inside a layer to the product that makes its neurons.
        norms: paths inside a layer to the layer norms of attention and feed-forward.
        projection_paths: paths inside a layer to the projections of Q, K and V, or the one path
            to a fused projection.
        has_pooler: whether the model takes ``add_pooling_layer``.
        factorised_embedding: whether a configuration may give the embedding its own width.
        words: path to the embedding of words.
        positions: path to the embedding of positions; None where positions are rotary.
        token_types: path to the embedding of token types, where there is one.
        embedding_norm: path to the layer norm of the embeddings.
        final: path to the module that gives the encoder's output; None where the last layer does.
        padded_positions: whether positions count from the padding token's id on, which makes the
            longest sequence shorter than the table of positions.
        layer_types: configuration key of a list with the kind of each layer, such as global or
            local attention.
        gated: whether the feed-forward block has a gate, and so a third matrix (GLU).
        biases: whether projections and layer norms have biases.
        head_dropout_keys: configuration keys of the dropout in front of a task's outputs.
    """

    model_type: str
    title: str
    config_keys: Mapping[str, str]
    dropout_keys: tuple[str, ...]
    layers: str
    silent: tuple[str, str]
    inner: str
    norms: tuple[str, str]
    projection_paths: tuple[str, ...]
    has_pooler: bool
    factorised_embedding: bool = False
    words: str = "embeddings.word_embeddings"
    positions: str | None = "embeddings.position_embeddings"
    token_types: str | None = "embeddings.token_type_embeddings"
    embedding_norm: str = "embeddings.LayerNorm"
    final: str | None = None
    padded_positions: bool = False
    layer_types: str | None = None
    gated: bool = False
    biases: bool = True
    head_dropout_keys: tuple[str, ...] = ("classifier_dropout",)

    @property
    def head_multiple(self) -> int:
        """What divides the width of an attention head: rotary positions turn pairs of values."""
        return 2 if self.positions is None else 1

    @property
    def normalises_first(self) -> bool:
        """Whether a block normalises what it reads (pre-LN), and not the sum it leads to."""
        return self.final is not None

    @property
    def has_bert_layers(self) -> bool:
        """Whether a layer consists of modules that are called and used as BERT's are."""
        return self.silent == _BERT_SILENT

    @property
    def feed_forward_entry(self) -> str:
        """Path inside a layer to the module that is given the states behind the attention."""
        return self.norms[1] if self.normalises_first else self.inner

    @property
    def lm_head(self) -> LMHeadNames:
        """Names of the masked-LM head."""
        return _LM_HEADS[self.model_type]

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

    def config_values(
        self, architecture: Architecture, teacher: PretrainedConfig
    ) -> dict[str, Any]:
        """Return the configuration entries that make a student of this architecture.

        A factorised embedding becomes as wide as the student, but where the student differs from
        its teacher in depth alone it stays as it is. Kinds of layers follow the teacher's pattern
        from the first layer on: where every third of its layers looks at the whole sequence, so
        does every third of the student's.
        """
        values = {key: getattr(architecture, axis) for axis, key in self.config_keys.items()}
        if self.factorised_embedding and any(
            getattr(teacher, key) != values[key]
            for axis, key in self.config_keys.items()
            if axis != "layers"
        ):
            values["embedding_size"] = architecture.hidden
        if self.layer_types:
            pattern = _pattern(getattr(teacher, self.layer_types))
            values[self.layer_types] = [
                pattern[layer % len(pattern)] for layer in range(architecture.layers)
            ]
        return values

    def axes(self, config: PretrainedConfig) -> dict[str, Any]:
        """Read the axes of an architecture off a configuration."""
        return {axis: getattr(config, key) for axis, key in self.config_keys.items()}

    def cut_layers(self, config: PretrainedConfig, count: int) -> None:
        """Let a configuration have only its first ``count`` layers."""
        setattr(config, self.config_keys["layers"], count)
        if self.layer_types:
            setattr(config, self.layer_types, getattr(config, self.layer_types)[:count])

    def keep_layers(
        self, model: nn.Module, config: PretrainedConfig, layers: Sequence[int]
    ) -> None:
        """Let a model and its configuration have only some of its layers, which count from 1.

        What the first of all layers lacks, the new first one loses: ModernBERT has no norm in front
        of its first attention, and none is there when what was saved is loaded.
        """
        every = self.transformer_layers(model)
        for name, module in every[0].named_children():
            if isinstance(module, nn.Identity):
                setattr(every[layers[0] - 1], name, module)
        self.set_layers(model, nn.ModuleList(every[layer - 1] for layer in layers))
        setattr(config, self.config_keys["layers"], len(layers))
        if self.layer_types:
            kinds = getattr(config, self.layer_types)
            setattr(config, self.layer_types, [kinds[layer - 1] for layer in layers])

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

    def layer_kinds(self, model: nn.Module) -> list[str]:
        """Kind of each layer, such as global or local attention; empty where all are alike."""
        return list(getattr(model.config, self.layer_types)) if self.layer_types else []

    def rotary(self, model: nn.Module, layer: int) -> Rotary | None:
        """How a layer turns its queries and keys; None if it does not."""
        if self.positions is not None:
            return None
        kind = self.layer_kinds(model)[layer - 1]
        frequencies: Tensor = getattr(model.rotary_emb, f"{kind}_inv_freq")
        scaling: float = getattr(model.rotary_emb, f"{kind}_attention_scaling")
        return Rotary(frequencies.detach().cpu(), float(scaling))

    def window(self, model: nn.Module, layer: int) -> int | None:
        """Tokens that a layer sees to either side; None where it sees the whole sequence."""
        kinds = self.layer_kinds(model)
        if not kinds or kinds[layer - 1] != "sliding_attention":
            return None
        config: Any = model.config
        return int(config.sliding_window)

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


def _pattern(kinds: Sequence[str]) -> Sequence[str]:
    """Return the shortest beginning that makes the whole list when it is repeated."""
    lengths = range(1, len(kinds) + 1)
    return next(
        kinds[:n] for n in lengths if all(kinds[i] == kinds[i % n] for i in range(len(kinds)))
    )


_BERT_KEYS = {
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "hidden": "hidden_size",
    "intermediate": "intermediate_size",
    "activation": "hidden_act",
}
_BERT_DROPOUT = ("hidden_dropout_prob", "attention_probs_dropout_prob")
_BERT_SILENT = ("attention.output.dense", "output.dense")
_BERT_INNER = "intermediate.dense"
_BERT_NORMS = ("attention.output.LayerNorm", "output.LayerNorm")
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
            _BERT_INNER,
            _BERT_NORMS,
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
            _BERT_INNER,
            _BERT_NORMS,
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
            _BERT_INNER,
            _BERT_NORMS,
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
            _BERT_INNER,
            _BERT_NORMS,
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
            "ffn.lin1",
            ("sa_layer_norm", "output_layer_norm"),
            ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
            has_pooler=False,
            token_types=None,
            head_dropout_keys=("seq_classif_dropout", "qa_dropout"),
        ),
        Family(
            "modernbert",
            "ModernBERT",
            _BERT_KEYS | {"activation": "hidden_activation"},
            ("embedding_dropout", "attention_dropout", "mlp_dropout"),
            "layers",
            ("attn.Wo", "mlp.Wo"),
            "mlp.Wi",
            ("attn_norm", "mlp_norm"),
            ("attn.Wqkv",),
            has_pooler=False,
            words="embeddings.tok_embeddings",
            positions=None,
            token_types=None,
            embedding_norm="embeddings.norm",
            final="final_norm",
            layer_types="layer_types",
            gated=True,
            biases=False,
        ),
    )
}

_ROBERTA_LM_HEAD = LMHeadNames(
    "lm_head.dense",
    "lm_head.layer_norm",
    "lm_head.decoder",
    ("lm_head.decoder.bias", "lm_head.bias"),
)
_LM_HEADS: dict[str, LMHeadNames] = {
    "bert": LMHeadNames(
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.decoder",
        ("cls.predictions.decoder.bias", "cls.predictions.bias"),
        activation="hidden_act",
    ),
    "roberta": _ROBERTA_LM_HEAD,
    "xlm-roberta": _ROBERTA_LM_HEAD,
    "electra": LMHeadNames(
        "generator_predictions.dense",
        "generator_predictions.LayerNorm",
        "generator_lm_head",
        ("generator_lm_head.bias",),
    ),
    "distilbert": LMHeadNames(
        "vocab_transform",
        "vocab_layer_norm",
        "vocab_projector",
        ("vocab_projector.bias",),
        activation="activation",
        layer_norm_eps=None,
    ),
    "modernbert": LMHeadNames(
        "head.dense",
        "head.norm",
        "decoder",
        ("decoder.bias",),
        activation="classifier_activation",
        layer_norm_eps="norm_eps",
        optional={
            "dense_bias": "classifier_bias",
            "norm_bias": "norm_bias",
            "bias": "decoder_bias",
        },
    ),
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


def family_problem(architecture: Architecture, teacher: TeacherShape) -> str | None:
    """Say why a student of this architecture cannot be of its teacher's family, or None."""
    family = family_of(teacher.model_type)
    if architecture.head_size % family.head_multiple == 0:
        return None
    possible = [
        heads
        for heads in range(1, architecture.hidden + 1)
        if architecture.hidden % (heads * family.head_multiple) == 0
    ]
    width = f"{architecture.heads} heads of {architecture.hidden} are {architecture.head_size} wide"
    advice = (
        f"choose one of {', '.join(map(str, possible[:12]))} heads"
        if possible
        else "choose another hidden size"
    )
    return f"{width}, and {family.title} needs heads of an even width; {advice}"
