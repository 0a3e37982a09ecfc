"""From presets, configuration files and options to one validated spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml

from kdnas.errors import SpecError, unknown_name
from kdnas.reach import ANYWHERE
from kdnas.specs.objective_registry import find_objective, objective_names
from kdnas.specs.objectives import DEFAULT_OBJECTIVE
from kdnas.specs.search import ProxiesSpec
from kdnas.specs.strategies import DEFAULT_STRATEGY, with_options_inside

Section = Literal["search", "sweep", "distillation", "pipeline"]

MOST_BYTES = 1 << 20
"""Of a file with a request, as of a body that the service takes."""
MOST_ENTRIES = 1_000_000
"""Of a request, lists and mappings within it counted with all that is in them."""


def preset_names() -> list[str]:
    """Names of the presets that come with the program."""
    folder = resources.files("kdnas.specs") / "presets"
    return sorted(p.name.removesuffix(".yaml") for p in folder.iterdir())


def load_preset(name: str, section: Section, objective: str | None = None) -> dict[str, Any]:
    """Return a preset's part for searches, sweeps, distillations or pipelines.

    A pipeline's search is the preset's, with what its own part says of it; a sweep trains students
    as the preset's search does.

    Args:
        name: of the preset.
        section: what is asked for.
        objective: what students learn, which may know options of its own and better rates for
            a preset than those of the default; a name that is none is left to who reads the spec.

    Raises:
        SpecError: no preset has this name, or the objective is of a package that cannot be loaded.
    """
    if name not in preset_names():
        raise SpecError(unknown_name("preset", name, preset_names()))
    text = (resources.files("kdnas.specs") / "presets" / f"{name}.yaml").read_text("utf-8")
    whole = yaml.safe_load(text)
    source = "search" if section == "sweep" else section
    part: dict[str, Any] = whole[source]
    if section == "sweep":
        part = {key: value for key, value in part.items() if key in ProxiesSpec.model_fields}
        # A sweep trains everything to the end.
        part["proxy"] = {key: value for key, value in part["proxy"].items() if key != "rungs"}
    learned = objective or DEFAULT_OBJECTIVE
    known = learned in objective_names()
    own: Mapping[str, Any] = find_objective(learned).presets.get(name, {}) if known else {}
    named = {"name": objective} if objective else {}
    options = {"objective": named | own["objective"]} if "objective" in own else {}
    if section == "pipeline":  # its students learn what its search's do
        rates: dict[str, Any] = {key: v for key, v in own.items() if key != "objective"}
        return merge({"search": whole["search"]}, part, rates, {"search": options})
    return merge(part, own.get(source, {}), options)


_MERGE = "tag:yaml.org,2002:merge"


class _UnfoldsTooFarError(Exception):
    """Of a file whose aliases name far more than it holds."""


class _Loader(yaml.SafeLoader):
    """YAML without any code, and without two entries of one name, of which one would be lost."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Read a mapping as it is written; raises an error of YAML's if a key comes twice."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.composer.ComposerError(
                    None, None, f"the key {key.value!r} comes twice; leave one out", key.start_mark
                )
            seen.add(key.value)
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Take in what ``<<`` names; raises an error of ours if that unfolds without end."""
        for key, value in node.value:
            if key.tag != _MERGE:
                continue
            parts = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for part in (part for part in parts if isinstance(part, yaml.MappingNode)):
                self.flatten_mapping(part)
                self._taken_in += len(part.value)
                if self._taken_in > MOST_ENTRIES:
                    raise _UnfoldsTooFarError
        super().flatten_mapping(node)

    _taken_in = 0


def load_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping from a file.

    Raises:
        SpecError: the file is missing, is no YAML, or holds something else than a mapping.
    """
    try:
        with ANYWHERE.open(path) as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise SpecError(f"{path} is larger than 1 MiB, which no request is; check the path")
        data = yaml.load(text.decode("utf-8"), _Loader)
        _refuse_endless(data)
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror}; check the path") from None
    except RecursionError:
        raise SpecError(f"{path} is nested too deeply for a request; check the file") from None
    except UnicodeDecodeError:
        raise SpecError(f"{path} is not UTF-8 text; save it as UTF-8") from None
    # No date of a calendar, and numbers such as 0x_ or without end, are ValueErrors of Python's.
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        detail = " ".join(str(error).split())
        raise SpecError(f"{path} is not valid YAML: {detail}") from None
    except _UnfoldsTooFarError:
        raise SpecError(
            f"{path} has more than {MOST_ENTRIES} entries, those behind its aliases with them, "
            "which no request has; check the file"
        ) from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise SpecError(f"{path} must hold `key: value` lines, not a {type(data).__name__}")
    return data


def _refuse_endless(data: Any) -> None:
    """Refuse data of too many entries where each alias is one more, or is an entry of itself."""
    left, count = [data], 0
    while left and count <= MOST_ENTRIES:
        value, count = left.pop(), count + 1
        if isinstance(value, Mapping):
            left += value.values()
        elif isinstance(value, list | tuple | set):
            left += value
    if count > MOST_ENTRIES:
        raise _UnfoldsTooFarError


def merge(
    *layers: Mapping[str, Any], chosen_by_grid: Sequence[str] = ("learning_rate", "epochs")
) -> dict[str, Any]:
    """Merge nested mappings; a later layer wins key by key.

    Text that is short for a mapping (``teacher: ./bert``) is joined with what the mapping already
    said; any other plain value replaces a mapping. A search space and a layer mapping are replaced
    whole, and so is an objective or a strategy by one of another name, whose options it would not
    understand; ``epochs`` or ``latency_price`` take the place of an earlier layer's ``steps`` or
    ``alpha``, which would win over them otherwise, as ``alpha`` takes that of a price, and so does
    a ``grid`` of what it chooses, by default the rate and the epochs. An evaluation over another
    suite leaves the tasks and the data of the one before. What stands beside a controller's
    strategy is laid over its options.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        for newer, older in (*_REPLACES, *(("grid", name) for name in chosen_by_grid)):
            if layer.get(newer) is not None and older not in layer:
                merged.pop(older, None)
        for key, value in layer.items():
            before = None if key in _WHOLE else merged.get(key)
            if key == "controller" and isinstance(value, Mapping):
                value = with_options_inside(value)
            if isinstance(value, Mapping) or isinstance(before, Mapping):
                short = _SHORTHAND.get(key)
                if short:
                    before, value = (
                        {} if v is None else v if isinstance(v, Mapping) else {short: v}
                        for v in (before, value)
                    )
            if key in _NAMED and _renames(before, value, _NAMED[key]):
                before = None
            if key == "evaluation" and isinstance(before, Mapping) and _moves(before, value):
                before = {k: v for k, v in before.items() if k not in _OF_A_SUITE}
            if isinstance(value, Mapping) and isinstance(before, Mapping):
                merged[key] = merge(before, value, chosen_by_grid=chosen_by_grid)
            else:
                merged[key] = value
    return merged


def _renames(before: Any, value: Any, default: str) -> bool:
    """Whether an objective or a strategy gets another name; without one it is the default."""
    if not (isinstance(before, Mapping) and isinstance(value, Mapping) and value.get("name")):
        return False
    return bool(value["name"] != (before.get("name") or default))


def _moves(before: Mapping[str, Any], value: Any) -> bool:
    """Whether an evaluation is given another suite."""
    if not isinstance(value, Mapping):
        return False
    return value.get("suite") not in {None, before.get("suite")}


# `teacher: ./bert` is short for `teacher: {ref: ./bert}`, and so on.
_SHORTHAND = {
    "teacher": "ref",
    "corpus": "source",
    "objective": "name",
    "strategy": "name",
    "student": "init",
    "backend": "name",
}
_NAMED = {"objective": DEFAULT_OBJECTIVE, "strategy": DEFAULT_STRATEGY}
_WHOLE = {"space", "mapping", "choose"}
_OF_A_SUITE = {"suite", "tasks", "data_dir", "own", "columns"}
_REPLACES = (
    ("epochs", "steps"),
    ("latency_price", "alpha"),
    ("alpha", "latency_price"),
)
