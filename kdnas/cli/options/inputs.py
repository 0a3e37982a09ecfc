"""Where values come from: option, else environment, else kdnas.yaml, else the preset.

Every command that works says on its first lines which values it took, and from where.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kdnas.settings import Settings
    from kdnas.specs.load import Section

CONFIG_FILE = "kdnas.yaml"
SHOWN = ("teacher", "corpus", "objective")
CHANGED_BY = {
    "teacher": "--teacher, KDNAS_TEACHER or kdnas.yaml",
    "corpus": "--corpus, KDNAS_CORPUS or kdnas.yaml",
    "objective": "--objective or kdnas.yaml",
}


@dataclass(frozen=True)
class Inputs:
    """A request as plain data, and the origin of each top-level key."""

    data: dict[str, Any]
    origins: dict[str, str]
    preset: str
    sources: list[str] = field(default_factory=list)

    def lines(self, keys: Sequence[str] = SHOWN) -> list[str]:
        """Say what was taken from where, a line a value."""
        lines = [f"preset     {self.preset}  ({self.origins['preset']})"]
        data = self.data.get("search", self.data)  # a pipeline's inputs are those of its search
        for key in keys:
            origin = self.origins.get(key, "default")
            change = f"; change it with {CHANGED_BY[key]}" if origin == "default" else ""
            lines.append(f"{key:<10} {_shown(key, data.get(key))}  ({origin}{change})")
        return lines


def _shown(key: str, value: Any) -> str:
    from kdnas.specs.objectives import DEFAULT_OBJECTIVE

    defaults = {"teacher": "minilm", "corpus": "pydocs", "objective": DEFAULT_OBJECTIVE}
    if isinstance(value, Mapping):
        short = {"teacher": "ref", "corpus": "source", "objective": "name"}[key]
        value = value.get(short)
    if value is None:
        value = defaults[key]
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def gather(
    section: Section,
    options: Mapping[str, Any],
    settings: Settings,
    *,
    preset: str | None = None,
    config: Path | None = None,
) -> Inputs:
    """Lay options over ``--config``, the environment, ``kdnas.yaml`` and the preset.

    Args:
        section: what is asked for.
        options: nested values given on the command line; those not given are left out.
        settings: of the environment.
        preset: given on the command line.
        config: YAML file given on the command line.

    Raises:
        SpecError: an unknown preset or an unreadable file.
    """
    from kdnas.specs.load import load_preset, load_yaml, merge

    local_file = Path(CONFIG_FILE)
    local = load_yaml(local_file) if local_file.is_file() else {}
    given = load_yaml(config) if config else {}
    local_preset, given_preset = local.pop("preset", None), given.pop("preset", None)
    local = _for_section(local, section)
    environment: dict[str, Any] = {
        key: value
        for key, value in (("teacher", settings.teacher), ("corpus", settings.corpus))
        if value
    }
    if section == "pipeline":
        environment = {"search": environment}
    name, why = "laptop", "default; change it with --preset"
    for value, origin in (
        (local_preset, CONFIG_FILE),
        (given_preset, str(config)),
        (preset, "--preset"),
    ):
        if value:
            name, why = str(value), f"from {origin}"
    said = [
        (f"from {CONFIG_FILE}", local),
        ("from the environment", environment),
        (f"from {config}", given),
        ("from the command line", options),
    ]
    objective = _objective(merge(*(layer for _, layer in said)), section)
    layers = [("default", load_preset(name, section, objective)), *said]
    origins = {"preset": why}
    for origin, layer in layers:
        inputs = {**layer, **layer.get("search", {})} if section == "pipeline" else layer
        for key, value in inputs.items():
            if origin != "default" and _names_source(key, value):
                origins[key] = origin
    return Inputs(merge(*(layer for _, layer in layers)), origins, name)


def _objective(data: Mapping[str, Any], section: Section) -> str | None:
    """Name the objective that is asked for; None if nobody says, or says it wrongly."""
    holder = data.get("search") if section == "pipeline" else data
    found = holder.get("objective") if isinstance(holder, Mapping) else None
    name = found.get("name") if isinstance(found, Mapping) else found
    return name if isinstance(name, str) else None


def _names_source(key: str, value: Any) -> bool:
    """Whether a layer says which teacher, corpus or objective, not only how it is cut."""
    short = {"teacher": "ref", "corpus": "source", "objective": "name"}.get(key)
    return short is None or not isinstance(value, Mapping) or short in value


def _for_section(data: dict[str, Any], section: Section) -> dict[str, Any]:
    """Leave out of kdnas.yaml what only other kinds of request have.

    In a pipeline everything has its place: what a search has goes there, ``training`` to the
    distillation of its students.
    """
    from kdnas.specs.distillation import DistillationSpec
    from kdnas.specs.search import SearchSpec

    searches, distillations = set(SearchSpec.model_fields), set(DistillationSpec.model_fields)
    if section == "pipeline":
        search = {key: value for key, value in data.items() if key in searches - {"name"}}
        training = {"training": data["training"]} if "training" in data else {}
        return {"search": search, "distillation": training}
    others = distillations - searches if section == "search" else searches - distillations
    return {key: value for key, value in data.items() if key not in others}


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Turn ``{"proxy.steps": 3, "name": None}`` into ``{"proxy": {"steps": 3}}``.

    Values that are None, and empty lists, were not given and are left out.
    """
    result: dict[str, Any] = {}
    for path, value in values.items():
        if value is None or value == []:
            continue
        *parents, last = path.split(".")
        level = result
        for part in parents:
            level = level.setdefault(part, {})
        level[last] = value
    return result


def refuse_with_resume(values: Mapping[str, Any]) -> None:
    """Refuse options beside ``--resume``, which takes the stored spec.

    Args:
        values: option, or path in the spec, → value; those not given are None or empty.

    Raises:
        SpecError: names every option that was given.
    """
    from kdnas.errors import SpecError

    given = sorted(_option(path) for path, value in values.items() if value not in (None, []))
    if given:
        raise SpecError(
            f"--resume takes the stored spec, so {', '.join(given)} cannot be given with it; leave "
            "it out, or start anew"
        )


def _option(path: str) -> str:
    """Name the option that sets a path of the spec."""
    special = {
        "proxy.fraction": "--proxy-fraction",
        "proxy.seed": "--proxy-seed",
        "proxy.reuse": "--no-reuse",
        "reward.loss": "--reward-loss",
        "limits.max_params_millions": "--max-params",
        "backend.address": "--ray-address",
        "architecture": "--arch",
    }
    if path.startswith("--"):
        return path
    part, _, key = path.rpartition(".")
    short = key in {"ref", "source", "kind", "name", "init"} and part
    return special.get(path, "--" + (part if short and key != "init" else key).replace("_", "-"))
