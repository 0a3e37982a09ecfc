"""Write what is installed, with licences, as a bill of materials: ``tools/sbom.py FILE``.

The format is cyclonedx-python-lib's. Its command-line program is not used: it asks for packages
that jsonschema loads wherever they are installed, which made every start of Ray seconds slower.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

OF_A_CLASSIFIER = "License :: "
LONGEST_NAME = 100
"""A longer text is no name of a licence but the licence itself."""


def bill(packages: Iterator[Distribution]) -> str:
    """Return the bill of these packages as JSON, in the order of their names.

    Two bills of the same packages are equal: number and time, which the format does not ask for,
    are left out.
    """
    components = {normalised(one.name): component(one) for one in packages if one.name != "kdnas"}
    root = Component(name="kdnas", type=ComponentType.APPLICATION, bom_ref="kdnas")
    bom = Bom(components=components.values())
    bom.metadata.component = root
    bom.register_dependency(root, components.values())
    written = json.loads(JsonV1Dot6(bom).output_as_string())
    del written["serialNumber"], written["metadata"]["timestamp"]
    return json.dumps(written, indent=1) + "\n"


def component(package: Distribution) -> Component:
    """One package: its name, version, licences and package URL."""
    name = normalised(package.name)
    return Component(
        name=name,
        version=package.version,
        bom_ref=f"{name}=={package.version}",
        purl=PackageURL("pypi", None, name, package.version),
        licenses=licences(package),
    )


def licences(package: Distribution) -> list[License]:
    """The licences of a package, from the clearest of the places that name them."""
    about, factory = package.metadata, LicenseFactory()
    if expression := about.get("License-Expression"):
        return [factory.make_from_string(expression)]
    named = [
        one.removeprefix(OF_A_CLASSIFIER).split(" :: ")[-1]
        for one in about.get_all("Classifier", [])
        if one.startswith(OF_A_CLASSIFIER) and one != "License :: OSI Approved"
    ]
    text = " ".join(str(about.get("License") or "").split())
    if not named and text:
        named = [text[:LONGEST_NAME]]
    return [factory.make_with_name(one) for one in dict.fromkeys(named)]


def normalised(name: str) -> str:
    """A package's name as indexes spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    Path(sys.argv[1] if sys.argv[1:] else "sbom.json").write_text(bill(distributions()), "utf-8")
