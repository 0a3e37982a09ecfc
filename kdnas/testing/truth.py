"""Whether an answer is what the service's document promises, no more and no less."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter


def assert_shape(shape: Any, content: Any) -> None:
    """Fail unless JSON content fits a shape and has nothing beside it.

    Args:
        shape: a model, or a list of models and the like.
        content: as it was answered.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(shape)
    assert adapter.dump_python(adapter.validate_python(content), mode="json") == content
