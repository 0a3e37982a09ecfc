"""Parquet data sets of the hub, at a pinned revision."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kdnas.errors import TaskDataError, some_of
from kdnas.evaluation.data.converting import Converted, from_rows
from kdnas.evaluation.data.files.records import class_named, class_names
from kdnas.evaluation.data.files.squad import from_squad_rows
from kdnas.evaluation.data.files.tables import Row, second_text
from kdnas.evaluation.tasks.task import HubPart, HubSource, Task

_COMMIT = re.compile(r"[0-9a-f]{40}")


def pinned(source: HubSource) -> str:
    """The commit of a data set: as given, or today's of a branch; empty for a local folder.

    Raises:
        TaskDataError: the hub cannot be asked.
    """
    if Path(source.path).is_dir():
        return ""
    if _COMMIT.fullmatch(source.revision):
        return source.revision
    from huggingface_hub import HfApi

    try:
        sha = HfApi().dataset_info(source.path, revision=source.revision).sha
    except Exception as error:
        raise _unreachable(source.path, error) from error
    return str(sha)


def read_hub_part(task: Task, source: HubSource, part: HubPart, revision: str) -> Converted:
    """Read a split of a data set of the hub, or of a local copy of its repository.

    Raises:
        TaskDataError: the hub cannot be reached, or there is no such configuration, split or
            column.
    """
    import datasets

    name = f"{source.path} ({part.config or 'default'}, {part.split})"
    local = Path(source.path).is_dir()
    root = source.path if local else f"hf://datasets/{source.path}@{revision}"
    try:
        if source.converted:
            files = f"{root}/{part.config}/{part.split}/*.parquet"
            data = datasets.load_dataset("parquet", data_files=files, split="train")
        else:
            data = datasets.load_dataset(
                source.path, part.config, split=part.split, revision=None if local else revision
            )
    except Exception as error:
        raise _unreachable(name, error) from error
    columns = source.columns
    wanted = [columns.text, columns.label, *([columns.pair] if columns.pair else [])]
    missing = [column for column in wanted if column not in data.column_names]
    if missing:
        raise TaskDataError(
            f"{name} has no column {missing[0]!r}; it has {some_of(data.column_names)}; "
            "give the task's files with a data folder instead"
        )
    if task.kind == "span":
        wanted += ["id"]
        return Converted({None: from_squad_rows(_records(data, wanted))})
    return from_rows(task, _rows(data, source, name), name)


def _rows(data: Any, source: HubSource, name: str) -> Iterator[Row]:
    columns = source.columns
    names = class_names(data.features[columns.label])
    wanted = [columns.text, columns.label, *([columns.pair] if columns.pair else [])]
    for number, record in enumerate(_records(data, wanted)):
        pair = second_text(record[columns.pair]) if columns.pair else None
        label = record[columns.label]
        label = label if names is None else class_named(name, label, names)
        yield Row(f"{name}, row", number, record[columns.text], pair, label)


def _records(data: Any, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Rows with these columns, read a thousand at a time: one by one is ten times slower."""
    for batch in data.select_columns(columns).iter(1000):
        for values in zip(*(batch[column] for column in columns), strict=True):
            yield dict(zip(columns, values, strict=True))


def _unreachable(name: str, error: BaseException) -> TaskDataError:
    detail = (str(error).strip() or type(error).__name__).splitlines()[0]
    return TaskDataError(
        f"cannot load {name} from the hub: {detail}; check the network, or unpack the task's files "
        "and give their folder"
    )


def sources_of(task: Task, source: HubSource, revision: str) -> tuple[str, ...]:
    """What a report names as the data's origin."""
    return (f"{source.path}@{revision}" if revision else f"{task.name} in {source.path}",)
