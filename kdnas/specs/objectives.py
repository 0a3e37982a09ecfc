"""The objectives of kdnas: one entry each, with its settings, its needs and its words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, model_validator

from kdnas.specs.objective_base import (
    LastLayerPart,
    LearnsOneLayer,
    NeedsLMHead,
    ObjectiveSpec,
    ObjectiveWords,
)
from kdnas.specs.ranges import Layer, PositiveWeight, Temperature, Weight

MappingName = Literal["single", "last", "uniform", "uniform_consecutive", "uniform_last", "kdnas"]
RelationName = Literal["qq", "qk", "qv", "kq", "kk", "kv", "vq", "vk", "vv"]
Presets = Mapping[str, Mapping[str, Any]]
EQUAL = 1.0
"""The weight of all pairs of layers, as published."""
LARGEST_RATE_OF_OUTPUTS = 5e-4
"""Between 2e-4, which teaches a student, and 1e-3, which ruins it (docs/objectives.md)."""

_PROJECTION_WORDS: dict[str, str] = {"q": "query", "k": "key", "v": "value"}
_SHORT: Final = ("cluster", "laptop")
"""Presets that train for less than the papers do, from the teacher start."""
_SLOW: dict[str, Any] = {
    "search": {"proxy": {"learning_rate": 2.0e-4}},
    "distillation": {"training": {"learning_rate": 2.0e-4}},
}


class _MapsLayers(ObjectiveSpec):
    """Hidden states by a layer mapping.

    ``mapping`` is one of the six names, or student layer → teacher layers such as
    ``{1: [2, 4], 2: [5, 6]}`` (layers count from 1).
    """

    allows_deeper: ClassVar[bool] = False

    mapping: MappingName | dict[Layer, tuple[Layer, ...]] = Field(
        "kdnas",
        title="Layer mapping",
        description="Which of the teacher's layers each layer of the student learns from.",
    )
    last_weight: Annotated[float, Field(gt=0, le=100)] = Field(
        EQUAL,
        title="Weight of the last layers",
        description="Weight of the last layers' hidden states, which are what is read of a "
        "student; all others have 1.",
    )

    def context(self) -> dict[str, Any]:
        """What was stored before layers could differ in weight says nothing of it: it is alike."""
        told = super().context()
        return {k: v for k, v in told.items() if (k, v) != ("last_weight", EQUAL)}

    def _mapping_words(self) -> str:
        heavier = f", that of the last layers with weight {self.last_weight:g}"
        weight = "" if self.last_weight == EQUAL else heavier
        if isinstance(self.mapping, str):
            return f"layer mapping `{self.mapping}`{weight}"
        pairs = (f"{i} → {' and '.join(map(str, js))}" for i, js in sorted(self.mapping.items()))
        return f"student → teacher layers {', '.join(pairs)}{weight}"


class HiddenStateSpec(_MapsLayers):
    """Hidden-state transfer (Trivedi Eq. 1)."""

    called: ClassVar[str] = "hidden states"
    implementation: ClassVar[str] = "kdnas.objectives.hidden_state:stages"
    # What is read of a student is its last layer (docs/science.md, hidden states).
    presets: ClassVar[Presets] = {key: {"objective": {"last_weight": 3}} for key in _SHORT}

    name: Literal["hs"] = "hs"

    def words(self) -> ObjectiveWords:
        """Of a model card."""
        return ObjectiveWords(
            "the hidden states of its teacher through linear projections "
            f"({self._mapping_words()})",
            "0 is a student whose projected hidden states equal the teacher's, 1 one that ignores "
            "its input",
        )


class MiniLMv2Spec(LearnsOneLayer):
    """Relations of queries, keys and values (Wang Eq. 5–8).

    ``relations`` has names, or name → weight. Without ``relation_heads`` there are 48, or 64 for a
    teacher at least 1024 wide.
    """

    called: ClassVar[str] = "relations of queries, keys and values"
    implementation: ClassVar[str] = "kdnas.objectives.minilmv2:stages"

    name: Literal["minilmv2"] = "minilmv2"
    relations: dict[RelationName, PositiveWeight] | tuple[RelationName, ...] = Field(
        ("qq", "kk", "vv"), description="Of queries, keys and values: any of the nine qq, qk … vv."
    )

    @model_validator(mode="after")
    def _some_relation(self) -> MiniLMv2Spec:
        if not self.relations or len(set(self.relations)) < len(self.relations):
            raise ValueError("name at least one relation, each once, such as [qq, kk, vv]")
        return self

    def weighted_relations(self) -> tuple[tuple[RelationName, float], ...]:
        """The relations with their weights, 1 where none was given."""
        if isinstance(self.relations, dict):
            return tuple(self.relations.items())
        return tuple((name, 1.0) for name in self.relations)

    @property
    def last_layer_parts(self) -> frozenset[LastLayerPart]:
        """Those that a relation names."""
        parts: tuple[LastLayerPart, ...] = ("q", "k", "v")
        named = "".join(pair for pair, _ in self.weighted_relations())
        return frozenset(part for part in parts if part in named)

    def words(self) -> ObjectiveWords:
        """Of a model card."""
        pairs = ", ".join(
            f"{_PROJECTION_WORDS[pair[0]]}-{_PROJECTION_WORDS[pair[1]]}"
            + ("" if weight == 1 else f" (weight {weight:g})")
            for pair, weight in self.weighted_relations()
        )
        return ObjectiveWords(
            f"the self-attention relations of {self._layer_words()} in its last layer "
            f"(MiniLMv2; relations {pairs})",
            "0 is a student whose relations equal the teacher's, 1 one whose tokens are all "
            "related alike",
        )


class DirectMiniLMSpec(LearnsOneLayer):
    """Queries, keys and values themselves (Udagawa Eq. 10).

    Without ``relation_heads`` there are as many as the teacher has attention heads.
    """

    called: ClassVar[str] = "queries, keys and values themselves"
    implementation: ClassVar[str] = "kdnas.objectives.direct_minilm:stages"

    name: Literal["direct-minilm"] = "direct-minilm"
    orthogonal: bool = Field(False, description="Keep the projections orthogonal.")

    def words(self) -> ObjectiveWords:
        """Of a model card."""
        projections = "orthogonal" if self.orthogonal else "linear"
        return ObjectiveWords(
            f"the queries, keys and values of {self._layer_words()} in its last layer through "
            f"{projections} projections (DirectMiniLM)",
            "0 is a student whose projected queries, keys and values equal the teacher's, 1 one "
            "that ignores its input",
        )


class _LearnsOutputs(NeedsLMHead):
    """Output distributions, which a large learning rate ruins."""

    def doubts(self, learning_rate: float, *, from_scratch: bool = False) -> list[str]:
        """Say of a learning rate that it is too large."""
        return self._rate_doubts(learning_rate, "")

    def _rate_doubts(self, peak: float, made: str) -> list[str]:
        if peak <= LARGEST_RATE_OF_OUTPUTS:
            return []
        return [
            f"a learning rate of {peak:g} is large for output distributions: 0.0002 taught a "
            f"student that 0.001 ruined; give at most {LARGEST_RATE_OF_OUTPUTS:g}{made}"
        ]


class _OutputDistribution(_LearnsOutputs):
    """The loss on output distributions (Udagawa Eq. 5)."""

    temperature: Temperature = Field(1.0, description="Of both output distributions.")
    positions: Literal["masked", "all"] = Field(
        "masked", description="Where the loss is taken: masked tokens, or all."
    )

    def _output_words(self) -> str:
        where = "the masked tokens" if self.positions == "masked" else "all tokens"
        return f"at {where} (temperature {self.temperature:g})"


_OUTPUT_RELATIVE = (
    "0 is a student that answers like its teacher, 1 one that ignores its input (KL divergence of "
    "the output distributions)"
)


class OutputSpec(_OutputDistribution):
    """Output distributions of masked-LM; best begun from an HS student (``init_from``)."""

    called: ClassVar[str] = "output distributions of masked-LM"
    implementation: ClassVar[str] = "kdnas.objectives.output_distribution:stages"
    presets: ClassVar[Presets] = dict.fromkeys(_SHORT, _SLOW)

    name: Literal["od"] = "od"

    def doubts(self, learning_rate: float, *, from_scratch: bool = False) -> list[str]:
        """Say of a rate that it is too large, and of a start from scratch that it is slow."""
        slow = (
            "output distributions teach a student from scratch slowly; begin with an hs student by "
            "`student.init_from`, or let the objective hs+od do both"
        )
        return [slow] * from_scratch + super().doubts(learning_rate)

    def words(self) -> ObjectiveWords:
        """Of a model card."""
        return ObjectiveWords(
            f"the output distributions of its teacher's masked-LM head {self._output_words()}",
            _OUTPUT_RELATIVE,
        )


class DistilBertSpec(_LearnsOutputs):
    """The DistilBERT baseline: copied layers, cosine loss, output distributions, masked-LM.

    ``weights`` are those of the cosine loss, the output distributions and masked-LM (Udagawa
    App. E).
    """

    called: ClassVar[str] = "copied layers, then cosines, output distributions and masked-LM"
    implementation: ClassVar[str] = "kdnas.objectives.distilbert:stages"
    copies_layers: ClassVar[bool] = True
    allows_deeper: ClassVar[bool] = False
    presets: ClassVar[Presets] = dict.fromkeys(_SHORT, _SLOW)

    name: Literal["distilbert"] = "distilbert"
    temperature: Temperature = Field(2.0, description="Of both output distributions.")
    weights: tuple[Weight, Weight, Weight] = Field(
        (1.0, 5.0, 2.0), description="Of cosines, output distributions and masked-LM."
    )

    def words(self) -> ObjectiveWords:
        """Of a model card."""
        cosine, output, masked = self.weights
        return ObjectiveWords(
            "the direction of its teacher's last hidden states, the output distributions of its "
            f"masked-LM head (temperature {self.temperature:g}) and masked-LM itself, weighted "
            f"{cosine:g} : {output:g} : {masked:g} (the DistilBERT recipe)",
            "the mean over these losses; 1 is a student that ignores its input, and 0 cannot be "
            "had where masked-LM counts, since the teacher itself does not guess every token",
        )


class MultiStageSpec(_OutputDistribution, _MapsLayers):
    """Hidden states first, then output distributions from there (Udagawa §4, multi-stage).

    As published, 7 of 10 epochs are of the first stage, and the second's rate is 3e-4 where the
    first's is 5e-4.
    """

    called: ClassVar[str] = "hidden states, then output distributions"
    implementation: ClassVar[str] = "kdnas.objectives.multi_stage:stages"
    presets: ClassVar[Presets] = {
        key: {"objective": {"last_weight": 3, "od_rate": 0.1}} for key in _SHORT
    }

    name: Literal["hs+od"] = "hs+od"
    hs_share: float = Field(
        0.7,
        gt=0,
        lt=1,
        title="Share of the first stage",
        description="Of the steps; the rest learns from output distributions.",
    )
    od_rate: PositiveWeight = Field(
        0.6,
        title="Learning rate of the second stage",
        description="As a share of the first stage's.",
    )

    def doubts(self, learning_rate: float, *, from_scratch: bool = False) -> list[str]:
        """Say of the second stage's rate that it is too large."""
        made = f" (it is {self.od_rate:g} times {learning_rate:g}: od_rate)"
        return self._rate_doubts(learning_rate * self.od_rate, made if self.od_rate != 1 else "")

    def words(self) -> ObjectiveWords:
        """Of a model card."""
        return ObjectiveWords(
            "first the hidden states of its teacher through linear projections "
            f"({self._mapping_words()}; {self.hs_share:.0%} of the steps), then the output "
            f"distributions of its masked-LM head {self._output_words()}",
            f"in the second stage, {_OUTPUT_RELATIVE}",
        )


OBJECTIVES: Final[Mapping[str, type[ObjectiveSpec]]] = {
    kind.model_fields["name"].default: kind
    for kind in (
        HiddenStateSpec,
        MiniLMv2Spec,
        DirectMiniLMSpec,
        OutputSpec,
        DistilBertSpec,
        MultiStageSpec,
    )
}
DEFAULT = HiddenStateSpec()
DEFAULT_OBJECTIVE: Final[str] = DEFAULT.name
