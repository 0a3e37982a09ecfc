"""What the long studies keep: results as they come, and the page that is made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class JsonLines:
    """A file of results, one JSON object a line; none yet where there is no file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text("utf-8").splitlines() if path.is_file() else []
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in lines if line]

    def add(self, row: dict[str, Any]) -> None:
        """Append a result."""
        self.rows.append(row)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def publish(text: str, numbers: dict[str, Any], output: Path | None) -> None:
    """Print a page; with a path without ending, also write it and its numbers there."""
    print(text)
    if output:
        output.with_suffix(".md").write_text(text, "utf-8")
        output.with_suffix(".json").write_text(json.dumps(numbers, indent=1) + "\n")
