"""Every method is held to the contract, and to the formula in its docstring."""

from __future__ import annotations

import pytest

from kdnas.errors import SpecError
from kdnas.specs.task_distillation import METHODS as ASKED_FOR
from kdnas.taskspecific.methods.base import Method
from kdnas.taskspecific.methods.registry import METHODS, method_named
from kdnas.testing.method_contract import MethodContract


def test_the_names_are_those_of_requests() -> None:
    assert tuple(METHODS) == ASKED_FOR
    assert all(method_named(name).name == name for name in ASKED_FOR)


def test_an_unknown_name_is_told_the_nearest() -> None:
    with pytest.raises(SpecError, match=r"universal-kd-il"):
        method_named("universal-kd-li")


class TestEveryMethod(MethodContract):
    @pytest.fixture(params=METHODS)
    def method(self, request: pytest.FixtureRequest) -> type[Method]:
        return METHODS[request.param]
