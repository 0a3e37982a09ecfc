from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from kdnas.errors import SpecError
from kdnas.specs.base import Spec
from kdnas.specs.distillation import DistillationSpec
from kdnas.specs.evaluation import EvaluationSpec
from kdnas.specs.load import Section, load_preset, merge, preset_names
from kdnas.specs.pipeline import PipelineSpec, VariantSpec
from kdnas.specs.search import BackendSpec, RewardSpec, SearchSpec
from kdnas.specs.strategies import ControllerStrategySpec

REQUESTS: list[tuple[type[Spec], dict[str, Any]]] = [
    (SearchSpec, {}),
    (
        SearchSpec,
        {
            "name": "a.b-c",
            "teacher": "./bert",
            "corpus": ["a.txt", "b/*.txt"],
            "space": {"axes": {"layers": [1, 2], "activation": ["relu"]}},
            "objective": {"mapping": {1: [2, 4], 2: [6]}},
            "controller": {"strategy": {"variant": "once", "epsilon_decay": "spread"}},
            "backend": {"gpu_fraction": 0.25},
        },
    ),
    (DistillationSpec, {"architecture": "4, 12,576,768, GELU", "training": {"steps": 5}}),
]


@pytest.mark.parametrize(("kind", "request_"), REQUESTS)
def test_round_trip_through_json(kind: type[Spec], request_: dict[str, Any]) -> None:
    spec = kind.read(request_, "request")
    stored = json.loads(json.dumps(spec.to_json(), allow_nan=False))
    assert kind.read(stored, "stored") == spec
    assert kind.read(stored, "stored").to_json() == stored


def test_defaults_are_written_out() -> None:
    stored = SearchSpec().to_json()
    assert stored["proxy"]["batch_size"] == 32
    assert stored["teacher"] == {"ref": "minilm", "revision": None, "fingerprint": None}


REQUESTED: list[type[Spec]] = [SearchSpec, DistillationSpec, EvaluationSpec, PipelineSpec]
WITHOUT_END = {"learning_rate", "relative", "probe", "axes"}
"""A rate harms its own training alone; two are what trials have found; a space knows its axes."""


def numbers(schema: Any, name: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every number of a JSON schema, with the name of its field."""
    if isinstance(schema, dict):
        if schema.get("type") in {"integer", "number"}:
            yield name, schema
        for key, value in schema.items():
            if key in {"properties", "$defs"}:
                for field, inner in value.items():
                    yield from numbers(inner, field)
            elif key != "default":
                yield from numbers(value, name)
    elif isinstance(schema, list):
        for inner in schema:
            yield from numbers(inner, name)


@pytest.mark.parametrize("kind", REQUESTED)
def test_every_number_of_a_request_has_two_ends(kind: type[Spec]) -> None:
    """One without an end lets a request fill the memory, or a database's integers."""
    found = dict(numbers(kind.model_json_schema()))
    assert {"steps", "threads", "seed"} & found.keys()
    for name, schema in numbers(kind.model_json_schema()):
        ends = schema.keys() & {"maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"}
        assert len(ends) == 2 or name in WITHOUT_END, (name, schema)


def test_specs_are_frozen() -> None:
    with pytest.raises(ValidationError):
        SearchSpec().seed = 1


def test_shorthands() -> None:
    spec = SearchSpec.read(
        {
            "teacher": "./bert",
            "corpus": "pydocs",
            "space": "paper",
            "objective": "hs",
            "student": "random",
            "backend": "local",
        },
        "request",
    )
    assert spec.teacher.ref == "./bert"
    assert spec.corpus.source == ("pydocs",)
    assert spec.space.kind == "paper"
    assert spec.student.init == "random"
    assert spec.backend.name == "local"


def test_axes_alone_make_a_custom_space() -> None:
    spec = SearchSpec.read({"space": {"axes": {"layers": [1]}}}, "request")
    assert (spec.space.kind, spec.space.axes) == ("custom", {"layers": (1,)})


def test_all_problems_are_listed_at_once_with_nearest_names() -> None:
    with pytest.raises(SpecError) as caught:
        SearchSpec.read(
            {
                "tacher": "x",
                "proxy": {"stepz": 3, "batch_size": 0},
                "reward": {"loss": "relativ"},
                "objective": {"mapping": "uniformm"},
                "backend": {"gpu_fraction": 0.3},
            },
            "search.yaml",
        )
    text = str(caught.value)
    assert text.startswith("search.yaml: 6 problems:")
    assert "'tacher', did you mean 'teacher'?" in text
    assert "'proxy.stepz', did you mean 'proxy.steps'?" in text
    assert "proxy.batch_size: give a whole number from 1 to 65536, not 0" in text
    assert "not 'relativ'; did you mean 'relative'?" in text
    assert "objective.mapping: give one of single, last, uniform, " in text
    assert "not 'uniformm'; did you mean 'uniform'?" in text
    assert "backend.gpu_fraction: gpu_fraction must be 1/n" in text


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "request: give an object with any of name, teacher"),
        ([1], "not [1]"),
        ("text", "not 'text'"),
        ({"seed": -1}, "seed: give a whole number from 0 to 2147483647, not -1"),
        ({"seed": "one"}, "not 'one'"),
        (
            {"controller": {"episodes": 10**30}},
            "controller.episodes: give a whole number from 1 to 100000, not",
        ),
        (
            {"controller": {"episodes": 1000, "candidates": 1000}},
            "episodes (1000) times candidates (1000) is 1000000, more than the 100000 that",
        ),
        ({"backend": {"threads": 10**6}}, "backend.threads: give a whole number from 1 to 1024"),
        (
            {"proxy": {"betas": [0.9, 5]}},
            "proxy.betas.1: give a number of at least 0 and below 1, not 5",
        ),
        ({"teacher": "a\0b"}, r"'a\x00b' holds a NUL or half a surrogate pair"),
        ({"corpus": {"source": ["a", "\ud800"]}}, r"'\ud800' holds a NUL or half a surrogate"),
        ({"space": {"axes": {"layers\udfff": [1]}}}, r"'layers\udfff' holds a NUL or half"),
        ({"name": "a b"}, "name 'a b' has a space in it"),
        ({"name": ""}, "name: "),
        ({"teacher": None}, "teacher: give an object with any of ref, revision, fingerprint"),
        ({"teacher": ""}, "teacher.ref"),
        *(
            ({part: {"revision": text}}, "give a commit, a tag or a branch of the hub, such")
            for part in ("teacher", "corpus")
            for text in ("/etc/hosts", "a/../../b", "..", "main::x", "refs//a", "-q", "m" * 201)
        ),
        ({"corpus": []}, "name at least one source"),
        ({"corpus": {"source": ["", "a"]}}, "name at least one source"),
        ({"corpus": {"max_length": 4}}, "corpus.max_length"),
        ({"corpus": {"held_out_fraction": 0}}, "corpus.held_out_fraction"),
        ({"space": {"kind": "paper", "axes": {"layers": [3]}}}, "axes go with kind custom"),
        ({"space": "custom"}, "axes go with kind custom"),
        (
            {"space": {"axes": {"layers": 3}}},
            "space.axes.layers: give a list, each a whole number, or text, not 3",
        ),
        (
            {"objective": {"mapping": {1: [2], 2: 5}}},
            "objective.mapping.2: give a list, each a whole number from 1 to 1000, not 5",
        ),
        ({"objective": "minilm"}, "objective: unknown name 'minilm', did you mean 'minilmv2'?"),
        ({"objective": "hs+do"}, "did you mean 'hs+od'?"),
        (
            {"objective": {"name": "od", "mapping": "last"}},
            "objective: mapping is for hs and hs+od, not for od",
        ),
        (
            {"objective": {"name": "od", "temprature": 2}},
            "'objective.temprature', did you mean 'objective.temperature'?",
        ),
        ({"objective": {"name": "minilmv2", "relations": []}}, "name at least one relation"),
        ({"objective": {"name": "minilmv2", "relations": ["qq", "qq"]}}, "each once"),
        (
            {"objective": {"name": "minilmv2", "relations": ["qq", "qqq"]}},
            "not 'qqq'; did you mean 'qq'?",
        ),
        (
            {"objective": {"name": "minilmv2", "relations": {"qq": 0}}},
            "objective.relations.qq: give a number above 0 and at most 1000000, not 0",
        ),
        (
            {"objective": {"name": "minilmv2", "teacher_layer": "atuo"}},
            "or one of auto, search, not 'atuo'; did you mean 'auto'?",
        ),
        (
            {"objective": {"name": "minilmv2", "teacher_layer": 0}},
            "objective.teacher_layer: give a whole number from 1 to 1000, or one of auto, "
            "search, not 0",
        ),
        (
            {"objective": {"name": "hs+od", "hs_share": 1}},
            "give a number above 0 and below 1, not 1",
        ),
        ({"objective": {"name": "distilbert", "weights": [1, 2]}}, "weights.2: is missing"),
        ({"objective": {"name": "od", "positions": "mask"}}, "did you mean 'masked'?"),
        ({"objective": 5}, "or an object with that as its name, not 5"),
        ({"proxy": {"epochs": None}}, "proxy: steps and epochs are both null; give one"),
        ({"proxy": {"rungs": [30, 30]}}, "give each rung once and in rising order, not [30, 30]"),
        ({"proxy": {"rungs": [-1]}}, "not -1"),
        ({"proxy": {"rungs": list(range(1, 22))}}, "at most 20"),
        (
            {"proxy": {"steps": 120, "rungs": [30, 120]}},
            "proxy.rungs: rungs lie before the last step of a training, which has 120 steps, and "
            "[120] do not; give smaller ones",
        ),
        ({"proxy": {"rungs": [30], "keep": 0}}, "not 0"),
        ({"proxy": {"learning_rate": math.nan}}, "proxy.learning_rate"),
        ({"proxy": {"learning_rate": math.inf}}, "not inf"),
        ({"proxy": {"betas": [0.9]}}, "proxy.betas.1: is missing"),
        ({"proxy": {"dropout": 1}}, "proxy.dropout"),
        ({"proxy": {"fraction": 1.5}}, "not 1.5"),
        ({"reward": {"alpha": 0.1}}, "reward.alpha"),
        ({"reward": {"latency_price": 1}}, "reward.latency_price"),
        (
            {"controller": {"strategy": {"variant": "once", "epsilon_decay": "spred"}}},
            "or spread, not 'spred'; did you mean 'spread'?",
        ),
        ({"limits": {"max_hours": 0}}, "limits.max_hours"),
        (
            {"goal": "limt"},
            "goal: give one of reward, limit, front, not 'limt'; did you mean 'limit'?",
        ),
        ({"goal": "limit"}, "limits: goal limit asks for the lowest loss within limits"),
        ({"goal": "limit", "limits": {"max_hours": 1}}, "add `limits.max_latency_ratio`"),
        ({"latency": {"device": "tpu"}}, "latency.device: give one of auto, cpu, cuda, not 'tpu'"),
    ],
)
def test_one_problem_is_one_sentence(data: object, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        SearchSpec.read(data, "request")
    text = str(caught.value)
    assert text.startswith("request: ")
    assert words in text
    assert "\n" not in text
    assert "literal[" not in text


def test_a_distillation_needs_a_readable_architecture() -> None:
    with pytest.raises(SpecError, match="architecture: is missing"):
        DistillationSpec.read({}, "request")
    with pytest.raises(SpecError, match=r"has 3 parts instead of 5"):
        DistillationSpec.read({"architecture": "4,5,288"}, "request")
    spec = DistillationSpec.read({"architecture": " 4,12,576,768,GELU"}, "request")
    assert spec.architecture == "4,12,576,768,gelu"
    assert str(spec.arch) == spec.architecture


@pytest.mark.parametrize(
    ("fraction", "valid"),
    [(1, True), (0.5, True), (1 / 3, True), (0.3, False), (0.7, False), (5e-324, False)],
)
def test_a_gpu_is_shared_in_whole_parts(fraction: float, valid: bool) -> None:
    if valid:
        assert BackendSpec(gpu_fraction=fraction)
    else:
        with pytest.raises(ValidationError, match="1/n"):
            BackendSpec(gpu_fraction=fraction)


def test_the_price_of_latency_is_an_exponent() -> None:
    assert RewardSpec().exponent == pytest.approx(-0.152, abs=5e-4)  # science §4
    assert RewardSpec(alpha=-0.06).exponent == -0.06
    assert RewardSpec(latency_price=0).exponent == 0
    assert 2 ** RewardSpec(latency_price=0.25).exponent == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            {"reward": {"alpha": -0.1, "latency_price": 0.2}},
            "reward.alpha -0.1 and reward.latency_price 0.2 contradict each other",
        ),
        ({"proxy": {"keep": 2}}, "proxy.keep is 2 and proxy.rungs [], but only"),
    ],
)
def test_what_cannot_count_is_refused_anew_and_read_where_it_is_stored(
    data: dict[str, Any], words: str
) -> None:
    spec = SearchSpec.read(data, "stored")
    assert SearchSpec.read(spec.to_json(), "stored") == spec
    with pytest.raises(SpecError) as caught:
        spec.refuse_contradictions()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"reward": {"alpha": -0.1}},
        {"reward": {"latency_price": 0.2}},
        {"proxy": {"steps": 60, "rungs": [30], "keep": 2}},
    ],
)
def test_a_request_with_its_defaults_written_out_contradicts_nothing(data: dict[str, Any]) -> None:
    SearchSpec.read(SearchSpec.read(data, "request").to_json(), "again").refuse_contradictions()


@pytest.mark.parametrize(
    "limit", [{"max_latency_ms": 3}, {"max_latency_ratio": 0.5}, {"max_params_millions": 9}]
)
def test_within_limits_latency_has_no_price(limit: dict[str, float]) -> None:
    spec = SearchSpec.read({"goal": "limit", "limits": limit}, "request")
    assert spec.judged_by == RewardSpec(alpha=0.0)
    assert SearchSpec.read(spec.to_json(), "again") == spec
    assert SearchSpec(goal="front").judged_by == RewardSpec()


@pytest.mark.parametrize("name", preset_names())
@pytest.mark.parametrize("section", ["search", "distillation"])
def test_presets_are_valid(name: str, section: Section) -> None:
    preset = load_preset(name, section)
    if section == "search":
        assert SearchSpec.read(preset, name)
    else:
        assert DistillationSpec.read({"architecture": "3,12,384,1024,gelu", **preset}, name)


@pytest.mark.parametrize("preset", preset_names())
@pytest.mark.parametrize(
    ("given", "start"),
    [
        ({}, ("warm", 8192)),
        ({"student": None}, ("warm", 8192)),
        ({"student": {"calibration_tokens": 4096}}, ("warm", 4096)),
        ({"student": "random"}, ("random", 8192)),
    ],
)
def test_students_of_a_pipeline_start_as_in_its_search_but_for_what_is_given(
    preset: str, given: dict[str, Any], start: tuple[str, int]
) -> None:
    search = {"teacher": "t", "corpus": "c", "student": "warm"}
    asked = {"search": search, "distillation": given}
    spec = PipelineSpec.read(merge(load_preset(preset, "pipeline"), asked), "request")
    student = spec.distillation_of("3,4,288,512,gelu", spec.search).student
    assert (student.init, student.calibration_tokens) == start
    again = PipelineSpec.read(spec.to_json(), "stored")
    assert again == spec


def test_the_papers_preset_is_as_published() -> None:
    """Science §4, §6 and §7."""
    spec = SearchSpec.read(load_preset("paper", "search"), "paper")
    assert (spec.space.kind, spec.student.init) == ("paper", "random")
    assert (spec.proxy.fraction, spec.proxy.epochs, spec.proxy.steps) == (0.3, 4, None)
    assert (spec.proxy.batch_size, spec.proxy.learning_rate) == (32, 8e-4)
    assert (spec.proxy.warmup_fraction, spec.proxy.betas) == (0.05, (0.9, 0.98))
    assert (spec.reward.loss, spec.reward.exponent, spec.reward.beta) == ("mean", -0.06, 0.6)
    assert (spec.controller.episodes, spec.controller.candidates) == (15, 20)
    assert spec.controller.strategy == ControllerStrategySpec(variant="paper")
    assert (spec.latency.device, spec.latency.threads, spec.latency.length) == ("cpu", 1, 32)
    full = load_preset("paper", "distillation")["training"]
    assert full["steps"] * full["warmup_fraction"] == 6500


def test_only_a_full_distillation_may_have_no_steps() -> None:
    spec = DistillationSpec.read(
        {"architecture": "3,12,384,1024,gelu", "training": {"steps": 0}}, "request"
    )
    assert spec.training.steps == 0
    with pytest.raises(SpecError, match=r"proxy.steps: give a whole number from 1 to"):
        SearchSpec.read({"proxy": {"steps": 0}}, "request")
    with pytest.raises(SpecError, match="steps 0 distils nothing; give 1 or more"):
        PipelineSpec.read(
            {"evaluation": {"suite": "glue"}, "distillation": {"training": {"steps": 0}}}, "request"
        )


def test_a_request_from_before_there_were_undistilled_students_is_read() -> None:
    spec = PipelineSpec.read({"evaluation": {"suite": "glue"}}, "request")
    assert spec.baselines.undistilled
    stored = spec.to_json()
    del stored["baselines"]["undistilled"], stored["baselines"]["smallest_cuts"]
    stored["baselines"]["variants"] = [{"int8": False, "layers": 0.5}]
    old = PipelineSpec.read(json.loads(json.dumps(stored)), "stored")
    assert old.baselines.undistilled
    assert not old.baselines.smallest_cuts
    assert old.baselines.variants[0].layers == 0.5


@pytest.mark.parametrize(
    ("layers", "kept"),
    [(None, 6), (0.5, 3), (0.01, 1), (0.99, 6), (1, 1), (1.0, 1), (4, 4), (9, 6)],
)
def test_layers_of_a_variant_are_a_share_or_a_count(layers: float | None, kept: int) -> None:
    variant = VariantSpec.model_validate({"int8": True, "layers": layers})
    assert variant.kept_layers(6) == kept
    assert VariantSpec.read(variant.to_json(), "again") == variant


@pytest.mark.parametrize("layers", [0, -1, 1.5, 0.0, "half"])
def test_layers_of_a_variant_are_neither_none_nor_a_part(layers: Any) -> None:
    with pytest.raises(ValidationError, match="layers"):
        VariantSpec.model_validate({"layers": layers})
