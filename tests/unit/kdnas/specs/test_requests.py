"""What can be asked for, by name."""

from __future__ import annotations

from kdnas.specs.base import Spec
from kdnas.specs.requests import REQUEST_NAMES, request_spec


def test_every_request_has_a_spec_of_its_own() -> None:
    specs = {request_spec(name) for name in REQUEST_NAMES}
    assert len(specs) == len(REQUEST_NAMES)
    assert all(issubclass(spec, Spec) for spec in specs)
    assert {spec.__name__.removesuffix("Spec").lower() for spec in specs} == {
        name.replace("-", "") for name in REQUEST_NAMES
    }
