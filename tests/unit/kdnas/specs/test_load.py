from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kdnas.errors import SpecError
from kdnas.specs.load import load_preset, load_yaml, merge, preset_names
from kdnas.specs.objective_registry import objective_spec
from kdnas.specs.objectives import HiddenStateSpec
from kdnas.specs.pipeline import PipelineSpec
from kdnas.specs.search import SearchSpec
from kdnas.specs.sweep import SweepSpec
from kdnas.specs.task_distillation import TRIED

HS_LAST = {"name": "hs", "mapping": "last"}


def test_later_layers_win_key_by_key() -> None:
    assert merge({"a": 1, "b": {"c": 1, "d": 2}}, {"b": {"c": 3}}, {"a": None}) == {
        "a": None,
        "b": {"c": 3, "d": 2},
    }
    assert merge({"a": {"b": 1}}, {"a": 2}) == {"a": 2}
    assert merge() == {}


def test_layers_are_left_as_they_were() -> None:
    below, above = {"a": {"b": 1}}, {"a": {"c": 2}}
    merge(below, above)["a"]["b"] = 5
    assert (below, above) == ({"a": {"b": 1}}, {"a": {"c": 2}})


def test_text_laid_over_a_mapping_keeps_what_it_said() -> None:
    merged = merge(
        {"corpus": {"max_length": 64}, "backend": {"name": "ray", "num_workers": 1}},
        {"corpus": "./texts", "backend": "local"},
    )
    assert merged["corpus"] == {"max_length": 64, "source": "./texts"}
    assert merged["backend"] == {"name": "local", "num_workers": 1}


def test_a_mapping_laid_over_text_keeps_the_text() -> None:
    merged = merge({"teacher": "./bert", "objective": "hs"}, {"teacher": {"revision": "v1"}})
    assert merged == {"teacher": {"ref": "./bert", "revision": "v1"}, "objective": "hs"}


def test_a_space_is_replaced_whole() -> None:
    axes = {"axes": {"layers": [1]}}
    for preset in preset_names():
        merged = merge(load_preset(preset, "search"), {"space": axes})
        assert SearchSpec.read(merged, "merged").space.kind == "custom"
    merged = merge({"space": axes}, {"space": "paper"})
    assert SearchSpec.read(merged, "merged").space.kind == "paper"


def test_a_layer_mapping_is_replaced_whole() -> None:
    below, above = ({"objective": {"mapping": m}} for m in ({1: [2], 2: [4]}, {1: [4]}))
    assert merge(below, above) == {"objective": {"mapping": {1: [4]}}}


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (({"name": "hs", "mapping": "last"}, {"name": "minilmv2"}), {"name": "minilmv2"}),
        (({"name": "hs", "mapping": "last"}, "minilmv2"), {"name": "minilmv2"}),
        (({"mapping": "last"}, "od"), {"name": "od"}),
        (("hs", {"name": "od", "temperature": 2}), {"name": "od", "temperature": 2}),
        (({"mapping": "last"}, "hs+od"), {"name": "hs+od"}),
        (({"name": "od", "temperature": 2}, "hs", {"mapping": "last"}), HS_LAST),
        (({"name": "od", "temperature": 2}, "hs", "od"), {"name": "od"}),
    ],
)
def test_another_objective_is_taken_without_the_options_of_the_one_before(
    layers: tuple[Any, ...], expected: dict[str, Any]
) -> None:
    merged = merge(*({"objective": layer} for layer in layers))
    assert objective_spec(merged["objective"]) == objective_spec(expected)
    assert SearchSpec.read(merged, "merged").objective.name == expected["name"]


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (({"mapping": "last"}, {"name": "hs"}), HS_LAST),
        (({"mapping": "last"}, "hs"), HS_LAST),
        (({"name": "hs"}, {"mapping": "last"}), HS_LAST),
        (("hs", {"mapping": "last"}), HS_LAST),
        (
            ({"name": "od", "temperature": 2}, {"positions": "all"}, "od"),
            {"name": "od", "temperature": 2, "positions": "all"},
        ),
        (({"name": "od", "temperature": 2}, None), {"name": "od", "temperature": 2}),
    ],
)
def test_the_same_objective_keeps_its_options(
    layers: tuple[Any, ...], expected: dict[str, Any]
) -> None:
    assert merge(*({"objective": layer} for layer in layers)) == {"objective": expected}


def test_other_mappings_keep_their_options_under_another_name() -> None:
    """Only objectives differ in what they can be told."""
    merged = merge({"teacher": {"ref": "./a", "revision": "v1"}}, {"teacher": {"ref": "./b"}})
    assert merged == {"teacher": {"ref": "./b", "revision": "v1"}}


def test_epochs_take_the_place_of_a_presets_steps() -> None:
    merged = merge(load_preset("laptop", "search"), {"proxy": {"epochs": 2}})
    spec = SearchSpec.read(merged, "merged")
    assert (spec.proxy.steps, spec.proxy.epochs) == (None, 2)
    both = merge({"proxy": {"steps": 5}}, {"proxy": {"epochs": 2, "steps": 7}})
    assert both == {"proxy": {"steps": 7, "epochs": 2}}


def test_a_latency_price_takes_the_place_of_a_presets_alpha() -> None:
    merged = merge(load_preset("paper", "search"), {"reward": {"latency_price": 0.5}})
    assert SearchSpec.read(merged, "merged").reward.exponent == -1


def test_alpha_takes_the_place_of_an_earlier_latency_price() -> None:
    earlier = {"reward": {"latency_price": 0.2}}
    merged = merge(load_preset("laptop", "search"), earlier, {"reward": {"alpha": -0.1}})
    spec = SearchSpec.read(merged, "merged")
    spec.refuse_contradictions()
    assert spec.reward.exponent == -0.1
    both = {"latency_price": 0.2, "alpha": -0.1}
    assert merge(load_preset("paper", "search"), {"reward": both})["reward"].items() >= both.items()


def test_a_grid_takes_the_place_of_what_it_chooses_and_of_nothing_else() -> None:
    file = {"epochs": 8, "finetune_epochs": 4, "learning_rate": 1e-4, "batch_size": 8, "beta": 0.2}
    merged = merge(file, {"grid": {}}, chosen_by_grid=TRIED)
    assert merged == {"epochs": 8, "finetune_epochs": 4, "grid": {}}


def test_a_grid_takes_the_place_of_a_presets_learning_rate() -> None:
    preset = {"evaluation": {"learning_rate": 1e-4, "epochs": 2, "max_steps": 500}}
    grid = {"learning_rates": [1e-4, 3e-4]}
    merged = merge(preset, {"evaluation": {"grid": grid}})
    assert merged == {"evaluation": {"max_steps": 500, "grid": grid}}
    both = merge(preset, {"evaluation": {"grid": grid, "learning_rate": 1e-3}})
    assert both["evaluation"]["learning_rate"] == 1e-3  # refused by who reads it


def test_a_preset_knows_rates_for_an_objective() -> None:
    plain = load_preset("laptop", "distillation")["training"]
    slow = load_preset("laptop", "distillation", "od")["training"]
    assert slow["learning_rate"] < plain["learning_rate"]
    assert slow == {**plain, "learning_rate": slow["learning_rate"]}
    whole = load_preset("laptop", "pipeline", "od")
    assert whole["distillation"]["training"]["learning_rate"] == slow["learning_rate"]
    proxy = load_preset("laptop", "search", "od")["proxy"]
    assert whole["search"]["proxy"]["learning_rate"] == proxy["learning_rate"]
    assert load_preset("laptop", "distillation", "distilbert")["training"] == slow
    second = load_preset("laptop", "distillation", "hs+od")
    assert second["training"] == plain
    assert second["objective"]["od_rate"] * plain["learning_rate"] == slow["learning_rate"]
    assert load_preset("laptop", "distillation", "nonsense")["training"] == plain


def test_a_preset_knows_options_of_an_objective() -> None:
    """Of one that is asked for by name, too, and not of others; a pipeline's are its search's."""
    for name, expected in (
        (None, {"last_weight": 3}),
        ("hs", {"name": "hs", "last_weight": 3}),
        ("hs+od", {"name": "hs+od", "last_weight": 3, "od_rate": 0.1}),
    ):
        for section in ("search", "distillation"):
            assert load_preset("laptop", section, name)["objective"] == expected
        whole = load_preset("laptop", "pipeline", name)
        assert whole["search"]["objective"] == expected
        assert "objective" not in whole["distillation"]
    for name in ("minilmv2", "od"):
        assert "objective" not in load_preset("laptop", "distillation", name)
    for section in ("search", "distillation"):
        assert "objective" not in load_preset("paper", section, "hs")
    asked = merge(load_preset("laptop", "search", "hs"), {"objective": {"name": "hs"}})
    assert SearchSpec.read(asked, "merged").objective == HiddenStateSpec(last_weight=3)


def test_the_preset_of_a_cluster_trains_longer_and_in_rungs() -> None:
    short, long = (SearchSpec.read(load_preset(n, "search"), n) for n in ("laptop", "cluster"))
    assert long.proxy.rungs[0] == 0
    assert long.proxy.steps is not None
    assert short.proxy.steps is not None
    assert long.proxy.steps > short.proxy.steps > max(short.proxy.rungs, default=0)
    assert (long.goal, long.controller.strategy) == (short.goal, short.controller.strategy)
    assert long.backend.group_size is None
    PipelineSpec.read(load_preset("cluster", "pipeline"), "cluster")
    assert not SweepSpec.read(load_preset("cluster", "sweep"), "cluster").proxy.rungs
    for name in ("od", "distilbert"):
        slow = load_preset("cluster", "search", name)["proxy"]
        assert slow == {**load_preset("cluster", "search")["proxy"], "learning_rate": 2e-4}


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SpecError, match="'laptob', did you mean 'laptop'"):
        load_preset("laptob", "search")
    assert {"cluster", "laptop", "paper"} <= set(preset_names())


ALIASES = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)
)

MERGES = "a0: &a0 {k0: 1, k1: 1, k2: 1}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 30)
)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a: [1", "not valid YAML"),
        (b"- 1\n", "must hold `key: value` lines, not a list"),
        (b"text", "not a str"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"seed: 1\nproxy: {steps: 3, steps: 4}\n", "the key 'steps' comes twice; leave one out"),
        (b"[" * 100_000, "nested too deeply"),
        (b"a: &a [*a]", "more than 1000000 entries, those behind its aliases"),
        (ALIASES.encode(), "more than 1000000 entries, those behind its aliases"),
        (MERGES.encode(), "more than 1000000 entries, those behind its aliases"),
        (b"a: &a {<<: *a}", "nested too deeply"),
        (b"a: {<<: 1}", "not valid YAML"),
        (b"#" * (1 << 20) + b"\na: 1", "larger than 1 MiB"),
        (b"name: 2001-13-45", "not valid YAML"),
        (b"a: 2001-01-01 99:00:00", "not valid YAML"),
        (b"seed: 0x_", "not valid YAML"),
        (b"seed: " + b"9" * 5000, "not valid YAML"),
        (b"a: 1" + b":59" * 5000 + b".5", "not valid YAML"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "kdnas.yaml"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=words) as caught:
        load_yaml(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_mapping_takes_in_what_it_names(tmp_path: Path) -> None:
    path = tmp_path / "kdnas.yaml"
    path.write_text("a: &a {x: 1, y: 2}\nb: &b {z: 3}\nc: {<<: [*a, *b], y: 4}\nd: {<<: *a}\n")
    assert load_yaml(path)["c"] == {"x": 1, "z": 3, "y": 4}
    assert load_yaml(path)["d"] == {"x": 1, "y": 2}


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="No such file"):
        load_yaml(tmp_path / "none.yaml")
    with pytest.raises(SpecError, match="cannot read"):
        load_yaml(tmp_path)
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(SpecError, match="it is no file"):
        load_yaml(tmp_path / "pipe.yaml")


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "kdnas.yaml"
    path.write_text("teacher: ./bert\nproxy: {steps: 3}\n")
    assert load_yaml(path) == {"teacher": "./bert", "proxy": {"steps": 3}}
    path.write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\n")
    assert load_yaml(path) == {"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 2}}
    path.write_text("# nothing\n")
    assert load_yaml(path) == {}
