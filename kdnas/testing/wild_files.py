"""Files of tasks as strangers bring them, in a few letters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from kdnas.evaluation.data.loading import load_task
from kdnas.evaluation.tasks.examples import TaskData
from kdnas.evaluation.tasks.task import Task


def load(task: Task, folder: Path, files: Mapping[str, str | bytes]) -> TaskData:
    """Write files into a folder and read them as a task: the folder, or the only file."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (only,) = [*files] if len(files) == 1 else [""]
    return load_task(task, folder / only)


def rows(number: int = 12, line: str = "text {n}\t{label}") -> str:
    """Rows of two classes that take turns."""
    return "".join(line.format(n=n, label=["good", "bad"][n % 2]) + "\n" for n in range(number))


def lines(*values: object) -> str:
    """JSON Lines."""
    return "\n".join(map(json.dumps, values)) + "\n"


def squad(*questions: Mapping[str, object]) -> str:
    """A file in the layout of SQuAD about one text: "a stone lies"."""
    about = {"context": "a stone lies", "qas": [{"question": "what?", **one} for one in questions]}
    return json.dumps({"data": [{"paragraphs": [about]}]})


CSV = "text,label\n" + rows(line="text {n},{label}")
TSV = "text\tlabel\n" + rows()
CONLL = "Anna\tB-PER\ncame\tO\n\nBo\tB-PER\nran\tO\n"
