"""What every objective says of itself: its settings, what it needs, and how it is called.

An objective has two halves. What is asked of it and said of it is here and in its entry in
:mod:`kdnas.specs.objectives`, which loads no torch: forms, help, checks and model cards read it and
know no objective by its name. What it computes is in the module that its entry names.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from kdnas.specs.base import Spec
from kdnas.specs.named import Family, NamedSpec
from kdnas.specs.ranges import Heads, Layer, Steps

LastLayerPart = Literal["q", "k", "v"]
TeacherLayer = Layer | Literal["auto", "search"]

UNTOLD = frozenset({"name", "lm_head", "trials", "trial_steps"})
"""Keys that a list of an objective's settings leaves out: how it was prepared, and its name."""


@dataclass(frozen=True, slots=True)
class ObjectiveWords:
    """An objective for people who read a model card.

    Attributes:
        learned: ends the sentence "It was distilled by learning …".
        relative: what a relative loss of 0 and of 1 means.
    """

    learned: str
    relative: str


class ObjectiveSpec(NamedSpec):
    """What a student learns. As the type of a field it stands for all objectives, by ``name``.

    Attributes:
        called: what is learned, in a few words, for forms and help.
        implementation: ``package.module:function`` that makes the stages of a spec, a tuple of
            :class:`kdnas.objectives.base.Stage`.
        needs_lm_head: whether it needs the teacher's masked-LM head; :class:`NeedsLMHead` says so.
        copies_layers: whether its students start as copies of teacher layers.
        allows_deeper: whether a student may have more layers than its teacher.
        presets: preset → what it says for this objective: options of it under ``objective``, and
            rates under ``search`` and ``distillation``.
    """

    implementation: ClassVar[str]
    needs_lm_head: ClassVar[bool] = False
    copies_layers: ClassVar[bool] = False
    allows_deeper: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    @abstractmethod
    def words(self) -> ObjectiveWords:
        """Say what was learned, and how its relative loss is to be read."""

    @property
    def needs_layer_search(self) -> bool:
        """Whether a teacher layer is to be found by trials first; :class:`LearnsOneLayer` asks."""
        return False

    @property
    def stored_lm_head(self) -> str | None:
        """Fingerprint of the masked-LM head that was fitted to the teacher, if there is one."""
        return None

    @property
    def width_multiple(self) -> int:
        """What a student's width has to be a multiple of."""
        return 1

    @property
    def last_layer_parts(self) -> frozenset[LastLayerPart] | None:
        """Which of the last layer's queries, keys and values it trains, where nothing behind them.

        None where a student is trained as a whole.
        """
        return None

    def doubts(self, learning_rate: float, *, from_scratch: bool = False) -> list[str]:
        """Say what the user should know before hours are spent.

        Args:
            learning_rate: peak rate of the training.
            from_scratch: of a full distillation, that it begins with no student trained before.
        """
        return []

    def context(self) -> dict[str, Any]:
        """Plain JSON as part of a loss's context: how it was prepared does not count."""
        return self.to_json()

    @classmethod
    def family(cls) -> Family:
        """All objectives."""
        from kdnas.specs import objective_registry  # which needs this class

        return objective_registry.family()


class NeedsLMHead(ObjectiveSpec):
    """An objective that needs the teacher's masked-LM head, fitted first if there is none."""

    needs_lm_head: ClassVar[bool] = True

    fit_lm_head: Steps | None = Field(
        None,
        title="Fit a masked-LM head",
        description="First train a head for a teacher that has none; its encoder stays as it is.",
        json_schema_extra={"unit": "steps"},
    )
    lm_head: str | None = Field(
        None,
        description="Fingerprint of the fitted head in the store.",
        json_schema_extra={"readOnly": True},
    )

    @property
    def stored_lm_head(self) -> str | None:
        """The fingerprint, once a head was fitted."""
        return self.lm_head

    def context(self) -> dict[str, Any]:
        """Leave out how long a head is fitted: ``lm_head`` names the head itself."""
        return {k: v for k, v in super().context().items() if k != "fit_lm_head"}


class TrialSpec(Spec):
    """The outcome of one trial: see :class:`kdnas.records.LayerTrial`."""

    teacher_layer: Layer
    relative: float
    probe: float


class LearnsOneLayer(ObjectiveSpec):
    """An objective whose students' last layer learns from one layer of the teacher."""

    relation_heads: Heads | None = Field(
        None, description="Into how many heads queries, keys and values are split."
    )
    teacher_layer: TeacherLayer = Field(
        "auto",
        description="The layer to learn from: a number, auto by the teacher's depth, or search: "
        "short trials of its upper half.",
    )
    trial_steps: Steps = Field(
        200, title="Steps of a trial", description="Only with teacher layer search."
    )
    trials: tuple[TrialSpec, ...] = Field(
        (),
        description="What the trials found; written out, with the chosen layer, when stored.",
        json_schema_extra={"readOnly": True},
    )

    @property
    def known_teacher_layer(self) -> int | None:
        """The layer as a number, or None for the objective's own choice."""
        return self.teacher_layer if isinstance(self.teacher_layer, int) else None

    @property
    def needs_layer_search(self) -> bool:
        """Whether the layer is to be found by trials."""
        return self.teacher_layer == "search"

    @property
    def width_multiple(self) -> int:
        """The relation heads, where they are given: they divide both widths."""
        return self.relation_heads or 1

    @property
    def last_layer_parts(self) -> frozenset[LastLayerPart]:
        """Queries, keys and values, behind which no loss is read."""
        return frozenset({"q", "k", "v"})

    def context(self) -> dict[str, Any]:
        """Leave out how the layer was found: ``teacher_layer`` is what was found."""
        left_out = {"trials", "trial_steps"}
        return {k: v for k, v in super().context().items() if k not in left_out}

    def _layer_words(self) -> str:
        """The teacher layer for a model card."""
        if self.known_teacher_layer is None:
            return "the teacher layer that suits its depth"
        how = f", the best of {len(self.trials)} tried" if self.trials else ""
        return f"teacher layer {self.known_teacher_layer}{how}"
