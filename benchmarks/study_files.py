"""What the long studies keep: results as they come, and the page that is made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kdnas import ENGINE_VERSION


class JsonLines:
    """A file of results, one JSON object a line; none yet where there is no file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text("utf-8").splitlines() if path.is_file() else []
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in lines if line]

    def having(self, **wanted: Any) -> list[dict[str, Any]]:
        """Results with these values."""
        return [r for r in self.rows if all(r.get(key) == v for key, v in wanted.items())]

    def refuse_others(self, corpus: str, fingerprint: str) -> None:
        """Refuse to go on with results that new ones cannot be mixed with.

        Args:
            corpus: name of the text.
            fingerprint: of the text that this machine has under that name.

        Raises:
            SystemExit: there are results of another engine on it, or of other text of the name.
                A result for which nothing changed since has ``holds_for_engine``.
        """
        rows = self.having(corpus=corpus)
        engines = {row.get("holds_for_engine", row["engine_version"]) for row in rows}
        if old := engines - {ENGINE_VERSION}:
            raise SystemExit(
                f"{self.path} has results of engine {', '.join(sorted(old))}, and this is "
                f"{ENGINE_VERSION}; remove what has changed since"
            )
        if other := {row["corpus_fingerprint"] for row in rows} - {fingerprint}:
            raise SystemExit(
                f"{self.path} has results on {corpus} ({', '.join(sorted(other))}), and this "
                f"machine's is another text ({fingerprint}); remove those rows"
            )

    def refuse_other_objectives(self, objective: dict[str, Any]) -> None:
        """Refuse to go on with results of students that learned something else.

        Raises:
            SystemExit: there are some.
        """
        other = [row for row in self.rows if learned(row) != objective]
        if other:
            raise SystemExit(
                f"{self.path} has {len(other)} results of {learned(other[0])}, and this study's "
                f"students learn {objective}; remove those rows, or give another --results"
            )

    def add(self, row: dict[str, Any]) -> None:
        """Append a result."""
        self.rows.append(row)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def learned(row: dict[str, Any]) -> dict[str, Any]:
    """The objective of a result; the first ones did not say, and are of plain hidden states."""
    objective: dict[str, Any] = row.get("objective", {"name": "hs"})
    return objective


def publish(text: str, numbers: dict[str, Any], output: Path | None) -> None:
    """Print a page; with a path without ending, also write it and its numbers there."""
    print(text)
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.with_suffix(".md").write_text(text, "utf-8")
        output.with_suffix(".json").write_text(json.dumps(numbers, indent=1) + "\n", "utf-8")
