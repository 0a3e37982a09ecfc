"""Where values come from: option, else environment, else kdnas.yaml, else the preset.

Every command that works says on its first lines which values it took, and from where.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdnas.cli.options.places import flag, nested
from kdnas.errors import SpecError

if TYPE_CHECKING:
    from kdnas.settings import Settings
    from kdnas.specs.load import Section

CONFIG_FILE = "kdnas.yaml"
MAIN_KEYS = {"teacher": "ref", "corpus": "source", "objective": "name"}
"""What a request is made from → the key that a plain value stands for."""
INPUTS_AT: Mapping[Section, str] = {"pipeline": "search"}
"""The part of a request that has these, where it is not the request itself."""
CHANGED_BY = {
    "teacher": "--teacher, KDNAS_TEACHER or kdnas.yaml",
    "corpus": "--corpus, KDNAS_CORPUS or kdnas.yaml",
    "objective": "--objective or kdnas.yaml",
}
EITHER = (("steps", "epochs"), ("alpha", "latency_price"))
"""Options of one part of a request of which only one can count."""


@dataclass(frozen=True)
class Inputs:
    """A request as plain data, its part that names the inputs, and the origin of each key."""

    data: dict[str, Any]
    inputs: Mapping[str, Any]
    origins: dict[str, str]
    preset: str

    def lines(self, keys: Iterable[str] = MAIN_KEYS) -> list[str]:
        """Say what was taken from where, a line a value."""
        lines = [f"preset     {self.preset}  ({self.origins['preset']})"]
        for key in keys:
            origin = self.origins.get(key, f"default; change it with {CHANGED_BY[key]}")
            lines.append(f"{key:<10} {_shown(key, self.inputs.get(key))}  ({origin})")
        return lines


def _shown(key: str, value: Any) -> str:
    from kdnas.specs.objectives import DEFAULT_OBJECTIVE

    if isinstance(value, Mapping):
        value = value.get(MAIN_KEYS[key])
    if value is None:
        value = {"teacher": "minilm", "corpus": "pydocs", "objective": DEFAULT_OBJECTIVE}[key]
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
        SpecError: an unknown preset, an unreadable file, or two options of which one can count.
    """
    from kdnas.specs.load import load_preset, load_yaml, merge

    _refuse_both(options)
    local_file = Path(CONFIG_FILE)
    local = load_yaml(local_file) if local_file.is_file() else {}
    given = load_yaml(config) if config else {}
    presets = (
        (preset, "from --preset"),
        (given.pop("preset", None), f"from {config}"),
        (local.pop("preset", None), f"from {CONFIG_FILE}"),
        ("laptop", "default; change it with --preset"),
    )
    name, why = next((str(named), why) for named, why in presets if named)
    environment: dict[str, Any] = {"teacher": settings.teacher, "corpus": settings.corpus}
    if section in INPUTS_AT:
        environment = {f"{INPUTS_AT[section]}.{key}": one for key, one in environment.items()}
    said = [
        (f"from {CONFIG_FILE}", _for_section(local, section)),
        ("from the environment", nested({key: one or None for key, one in environment.items()})),
        (f"from {config}", given),
        ("from the command line", options),
    ]
    layers = [layer for _, layer in said]
    objective = _objective(_inputs_of(section, merge(*layers)))
    origins = {"preset": why}
    for origin, layer in said:
        keys = {**layer, **_inputs_of(section, layer)}
        origins |= {key: origin for key, value in keys.items() if _names_source(key, value)}
    data = merge(load_preset(name, section, objective), *layers)
    return Inputs(data, _inputs_of(section, data), origins, name)


def _inputs_of(section: Section, layer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a layer that names teacher, corpus and objective."""
    if section not in INPUTS_AT:
        return layer
    part = layer.get(INPUTS_AT[section])
    return part if isinstance(part, Mapping) else {}


def _objective(inputs: Mapping[str, Any]) -> str | None:
    """Name the objective that is asked for; None if nobody says, or says it wrongly."""
    found = inputs.get("objective")
    name = found.get("name") if isinstance(found, Mapping) else found
    return name if isinstance(name, str) else None


def _names_source(key: str, value: Any) -> bool:
    """Whether a layer says which teacher, corpus or objective, not only how it is cut."""
    return key not in MAIN_KEYS or not isinstance(value, Mapping) or MAIN_KEYS[key] in value


def _for_section(data: Mapping[str, Any], section: Section) -> dict[str, Any]:
    """Leave out of kdnas.yaml what only other kinds of request have.

    In a request that has its inputs in a part of its own everything has its place: what a search
    has goes there, ``training`` to the distillation of its students.
    """
    from kdnas.specs.distillation import DistillationSpec
    from kdnas.specs.search import SearchSpec
    from kdnas.specs.sweep import SweepSpec

    own = {
        "search": set(SearchSpec.model_fields),
        "sweep": set(SweepSpec.model_fields),
        "distillation": set(DistillationSpec.model_fields),
    }
    if section in own:
        # What a sweep alone has stands at the top of its request, as a slip may in kdnas.yaml.
        others = (own["search"] | own["distillation"]) - own[section]
        return {key: value for key, value in data.items() if key not in others}
    places = {"search": own["search"] - {"name"}, "distillation": {"training"}}
    return {
        part: {key: value for key, value in data.items() if key in keys}
        for part, keys in places.items()
    }


def _refuse_both(options: Mapping[str, Any]) -> None:
    """Refuse two lengths of one training, or two prices of latency, of which only one could count.

    Raises:
        SpecError: both were given.
    """
    parts = [part for part in options.values() if isinstance(part, Mapping)]
    for part, (one, other) in product(parts, EITHER):
        if {one, other} <= part.keys():
            raise SpecError(
                f"{flag(one)} {part[one]:.12g} and {flag(other)} {part[other]:.12g} contradict "
                "each other; give one of them"
            )
