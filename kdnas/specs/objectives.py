"""What a student may be asked to learn: one spec an objective, told apart by ``name``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, TypeAdapter, model_validator

from kdnas.specs.base import Spec
from kdnas.specs.ranges import Heads, Layer, PositiveWeight, Steps, Temperature, Weight

MappingName = Literal["single", "last", "uniform", "uniform_consecutive", "uniform_last", "kdnas"]
RelationName = Literal["qq", "qk", "qv", "kq", "kk", "kv", "vq", "vk", "vv"]
ObjectiveName = Literal["hs", "minilmv2", "direct-minilm", "od", "distilbert", "hs+od"]
DEFAULT_OBJECTIVE: ObjectiveName = "hs"
TeacherLayer = Layer | Literal["auto", "search"]
EQUAL = 1.0
"""The weight of all pairs of layers, as published."""
LastWeight = Annotated[float, Field(gt=0, le=100)]


class HiddenStateSpec(Spec):
    """Hidden-state transfer (Trivedi Eq. 1).

    ``mapping`` is one of the six names, or student layer → teacher layers such as
    ``{1: [2, 4], 2: [5, 6]}`` (layers count from 1). ``last_weight`` is the weight of the pair of
    last layers, where all others have 1 as published.
    """

    name: Literal["hs"] = "hs"
    mapping: MappingName | dict[Layer, tuple[Layer, ...]] = "kdnas"
    last_weight: LastWeight = EQUAL


class TrialSpec(Spec):
    """The outcome of one trial: see :class:`kdnas.records.LayerTrial`."""

    teacher_layer: Layer
    relative: float
    probe: float


class _OneTeacherLayer(Spec):
    """The objectives in which the student's last layer learns from one layer of the teacher.

    Attributes:
        relation_heads: into how many heads Q, K and V are split.
        teacher_layer: which layer of the teacher; ``auto`` by its depth, ``search`` by short
            trials of the upper half.
        trial_steps: steps of such a trial.
        trials: what the trials found; written out, with the chosen layer, when a request is
            stored.
    """

    relation_heads: Heads | None = None
    teacher_layer: TeacherLayer = "auto"
    trial_steps: Steps = 200
    trials: tuple[TrialSpec, ...] = ()

    @property
    def known_teacher_layer(self) -> int | None:
        """The layer as a number, or None for the objective's own choice."""
        return self.teacher_layer if isinstance(self.teacher_layer, int) else None


class MiniLMv2Spec(_OneTeacherLayer):
    """Relations of queries, keys and values (Wang Eq. 5–8).

    Attributes:
        relations: which of the nine, as names or name → weight.
        relation_heads: None takes 48, or 64 for a teacher at least 1024 wide.
    """

    name: Literal["minilmv2"] = "minilmv2"
    relations: dict[RelationName, PositiveWeight] | tuple[RelationName, ...] = (
        "qq",
        "kk",
        "vv",
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


class DirectMiniLMSpec(_OneTeacherLayer):
    """Queries, keys and values themselves (Udagawa Eq. 10).

    Attributes:
        relation_heads: None takes the teacher's attention heads.
        orthogonal: keep the projections orthogonal.
    """

    name: Literal["direct-minilm"] = "direct-minilm"
    orthogonal: bool = False


class _MaskedLM(Spec):
    """The objectives that need the teacher's masked-LM head.

    Attributes:
        fit_lm_head: train a head for a teacher that has none, for so many steps.
        lm_head: fingerprint of the fitted head in the store; written out when a request is stored.
    """

    fit_lm_head: Steps | None = None
    lm_head: str | None = None


class _OutputDistribution(_MaskedLM):
    """The loss on output distributions (Udagawa Eq. 5).

    Attributes:
        temperature: of both softmaxes.
        positions: where the loss is taken: the masked tokens, or all.
    """

    temperature: Temperature = 1.0
    positions: Literal["masked", "all"] = "masked"


class OutputSpec(_OutputDistribution):
    """Output distributions of masked-LM; best begun from an HS student (``init_from``)."""

    name: Literal["od"] = "od"


class DistilBertSpec(_MaskedLM):
    """The DistilBERT baseline: copied layers, cosine loss, output distributions, masked-LM.

    Attributes:
        temperature: of the output distributions.
        weights: of the cosine loss, the output distributions and masked-LM (Udagawa App. E).
    """

    name: Literal["distilbert"] = "distilbert"
    temperature: Temperature = 2.0
    weights: tuple[Weight, Weight, Weight] = (1.0, 5.0, 2.0)


class MultiStageSpec(_OutputDistribution):
    """Hidden states first, then output distributions from there (Udagawa §4, multi-stage).

    Attributes:
        mapping: layer mapping of the first stage.
        last_weight: of the pair of last layers in the first stage.
        hs_share: share of the steps in the first stage (7 of 10 epochs as published).
        od_rate: the second stage's peak learning rate as a share of the first's (3e-4 of 5e-4).
    """

    name: Literal["hs+od"] = "hs+od"
    mapping: MappingName | dict[Layer, tuple[Layer, ...]] = "kdnas"
    last_weight: LastWeight = EQUAL
    hs_share: float = Field(0.7, gt=0, lt=1)
    od_rate: PositiveWeight = 0.6


def _from_text(value: Any) -> Any:
    """Take a bare name, and hidden states where no name is given."""
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, dict):
        value = {"name": DEFAULT_OBJECTIVE, **value}
        _refuse_keys_of_others(value)
    return value


def _refuse_keys_of_others(value: dict[str, Any]) -> None:
    """Tell a key that belongs to another objective from one that is misspelt."""
    own = _SPECS.get(str(value["name"]))
    if own is None:
        return
    for key in value.keys() - own.model_fields.keys():
        owners = [name for name, spec in _SPECS.items() if key in spec.model_fields]
        if owners:
            raise ValueError(
                f"{key} is for {' and '.join(owners)}, not for {value['name']}; leave it out, or "
                "choose another objective"
            )


_SPECS: dict[str, type[Spec]] = {
    str(spec.model_fields["name"].default): spec
    for spec in (
        HiddenStateSpec,
        MiniLMv2Spec,
        DirectMiniLMSpec,
        OutputSpec,
        DistilBertSpec,
        MultiStageSpec,
    )
}

ObjectiveSpec = Annotated[
    HiddenStateSpec
    | MiniLMv2Spec
    | DirectMiniLMSpec
    | OutputSpec
    | DistilBertSpec
    | MultiStageSpec,
    Field(discriminator="name"),
    BeforeValidator(_from_text),
]

_ADAPTER: TypeAdapter[ObjectiveSpec] = TypeAdapter(ObjectiveSpec)


def objective_spec(value: Any) -> ObjectiveSpec:
    """Read the plain JSON of a stored objective."""
    return _ADAPTER.validate_python(value)
