"""What the entry of every objective must say, as a suite of tests to inherit from."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

from kdnas.architecture import Architecture
from kdnas.objectives.registry import build_stages, objective_problem
from kdnas.records import TeacherShape
from kdnas.specs.objective_base import LearnsOneLayer, NeedsLMHead, ObjectiveSpec
from kdnas.specs.objective_registry import find_objective, objective_names, objective_spec

TEACHER = TeacherShape("bert", 5, 12, 48, 96, "gelu", 23, 32, 2, "made-up")
STUDENT = Architecture(2, 12, 48, 96, "gelu")
"""Of another depth alone, which any objective allows."""


class ObjectiveSpecContract:
    """Inherit in a test class and give :attr:`given`.

    Attributes:
        given: the objective as plain JSON, with its ``name``.
    """

    given: dict[str, Any]

    def spec(self) -> ObjectiveSpec:
        """The objective as it is read."""
        return objective_spec(self.given)

    def test_it_is_known_by_its_name(self) -> None:
        """As any other, and with no more than its name."""
        name = self.given["name"]
        assert name in objective_names()
        assert type(self.spec()) is find_objective(name) is type(objective_spec(name))
        assert self.spec().name == name

    def test_it_is_stored_and_read_again(self) -> None:
        """With every default written out."""
        spec = self.spec()
        stored = json.loads(json.dumps(spec.to_json(), allow_nan=False))
        assert objective_spec(stored) == spec
        assert set(stored) == set(type(spec).model_fields)

    def test_it_has_words(self) -> None:
        """For a card, for a list of objectives, and for each of its settings in a form."""
        spec = self.spec()
        words = spec.words()
        assert words.learned
        assert words.relative
        assert "None" not in words.learned
        assert not words.learned.endswith(".")  # it ends a sentence
        assert spec.called == spec.called.strip()
        schema = TypeAdapter(type(spec)).json_schema()
        assert schema["title"] == spec.called
        for name, entry in schema["properties"].items():
            assert name == "name" or entry["description"], name

    def test_its_needs_are_those_of_what_it_trains_on(self) -> None:
        """They are said twice: where no torch is loaded, and where the training is."""
        spec, stages = self.spec(), build_stages(self.spec())
        assert sum(stage.share for stage in stages) == 1
        assert spec.needs_lm_head == any(stage.objective.needs_lm_head for stage in stages)
        assert spec.needs_lm_head == isinstance(spec, NeedsLMHead)
        assert spec.copies_layers == stages[0].objective.copies_layers
        assert isinstance(spec, LearnsOneLayer) or not spec.needs_layer_search
        assert objective_problem(spec, STUDENT, TEACHER) is None
        deeper = objective_problem(spec, replace(STUDENT, layers=TEACHER.layers + 1), TEACHER)
        assert (deeper is None) == spec.allows_deeper

    def test_how_it_was_prepared_is_no_part_of_its_context(self) -> None:
        """What is written out when a request is stored makes no other loss, but for a head."""
        spec = self.spec()
        context = spec.context()
        assert context["name"] == spec.name
        assert context.items() <= spec.to_json().items()
        assert not {"fit_lm_head", "trials", "trial_steps"} & context.keys()

    def test_a_preset_says_of_it_what_it_understands(self) -> None:
        """Options that it has."""
        for preset in self.spec().presets.values():
            options = {"name": self.given["name"], **preset.get("objective", {})}
            assert objective_spec(options).name == self.given["name"]
