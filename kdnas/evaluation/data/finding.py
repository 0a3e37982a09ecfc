"""Which files of a folder are the parts of a task, found by their names."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.files.opening import suffix_of
from kdnas.evaluation.data.files.watching import PARTS, Part
from kdnas.evaluation.tasks.registry import TASKS
from kdnas.evaluation.tasks.task import RECORD_FILES, LocalLayout, Task, simple
from kdnas.reach import ANYWHERE, Reach
from kdnas.specs.evaluation import OWN_SUITE

_VARIANTS = ("matched", "mismatched")
_NO_DATA = ("readme", "license", "licence")
_OF_DATASETS = ("state.json", "dataset_dict.json", "dataset_info.json", "dataset_infos.json")
"""Files without examples that `datasets` writes beside the others."""
_CACHE = re.compile(r"(?:cache-|tmp).*\.arrow")
"""What `datasets` keeps of its work in a folder."""
_PACKED = (".zip", ".tar", ".tgz", ".rar", ".7z", ".bz2", ".xz", ".zst")
_SHEETS = (".xlsx", ".xls", ".ods", ".numbers")
_BESIDE = (
    "",
    ".md",
    ".rst",
    ".pdf",
    ".html",
    ".yaml",
    ".yml",
    ".toml",
    ".py",
    ".sh",
    ".log",
    ".lock",
)
"""Ends of the names of files that tell of data, or work on them."""
_SHARD = re.compile(r"\d+-of-0*(\d+)")
"""In the names of the files that a part of a data set of the hub is made of."""
_PIECE = re.compile(r"(?:part-)?\d{4,}\b")
"""How files of a folder begin that are one table together, as Spark and the hub write them."""
_PART_WORDS = re.compile("train|valid|dev|test|val")
"""In names of two files that are alike but for it, as ``engtrain.bio`` and ``engtest.bio`` are."""
_DEPTH = 2
COLLECTION: Mapping[str, frozenset[str]] = {
    "passages": frozenset({"corpus", "collection", "passages", "documents", "docs"}),
    "queries": frozenset({"queries", "query", "topics", "topic", "questions"}),
    "judgements": frozenset({"qrels", "qrel", "judgements", "judgments"}),
}
"""Files of a retrieval, by words of their names, or of that of the folder that they are in."""
_COLLECTION_SUFFIXES = (*RECORD_FILES, ".tsv", ".csv", ".txt", ".trec")
_HUB_FOLDERS = ("data", "default", "plain_text", "secondary_task")
"""Where a repository of the hub keeps the parts of a data set."""
_MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class Found:
    """A file of a task.

    Attributes:
        path: where it lies.
        part: what its name says it is; None where it says nothing.
        key: language or variant (``matched``) in its name, or what of ``COLLECTION`` it holds; None
            where it names none.
        passed_over: files that could be the same part, and are not taken.
        together: whether it is one of several that make a part, none of which is passed over.
        shards: of how many files its name says that the part is made, as on the hub.
    """

    path: Path
    part: Part | None
    key: str | None
    passed_over: tuple[Path, ...] = ()
    together: bool = False
    shards: int | None = None


def find_files(task: Task, where: Path, reach: Reach = ANYWHERE) -> list[Found]:
    """Find the files of a task in a folder, or in a folder of its own below it.

    The folder may be the task's, the one above it, or the one above that; upper and lower case
    and punctuation of names do not matter. One file alone is taken as it is.

    Raises:
        RequestError: a folder is out of reach.
        TaskDataError: there is nothing; lists what was looked for.
    """
    if where.is_file():
        reach.require(where)
        return [Found(where, None, None)]
    if not where.is_dir():
        raise TaskDataError(f"data folder {str(where)!r} is not there; give a folder or a file")
    try:
        if task.kind == "retrieval":
            collection = _collection(where, reach)
            if collection:
                return collection
        folders = _folders(task, where, reach)
        found = next(filter(None, (_files_of(task, f, reach) for f in folders)), None)
    except OSError as error:
        raise TaskDataError(
            f"cannot look into {error.filename}: {error.strerror}; make it readable, or give "
            "another folder"
        ) from None
    if found is not None:
        return [*_lent(task, found, folders, reach), *found]
    layout = task.layout
    packed = next((p.name for p in reach.children(where) if p.suffix.lower() in _PACKED), None)
    advice = "check the folder, or give a file of it"
    if task.hub is not None:
        advice = "check the folder, or leave it out to take that of the hub"
    if packed is not None:
        advice = f"unpack {packed}"
    if any(
        _names_a_part(layout, f) and [*_subfolders(f, 1, reach)]
        for f in _subfolders(where, 1, reach)
    ):
        advice = "texts that are files of their own are not read; write a text and its label a line"
    named = f", or in a folder of it called {' or '.join(layout.folders)}" if layout.folders else ""
    raise TaskDataError(
        f"no data of {task.name} in {where}: looked for files such as {', '.join(layout.examples)} "
        f"(any with train, dev or test in its name that ends in "
        f"{', '.join(suffix or 'nothing' for suffix in layout.suffixes)}) there{named}, and found "
        f"{_what_lies(where, reach)}; {advice}"
    )


def parts_of(files: Sequence[Found]) -> tuple[list[Found], list[str]]:
    """Part files that are called after parts, or all if none is, from those that are not read.

    Returns:
        Those that are read, and a note on those that are not.
    """
    parts = [file for file in files if file.part]
    others = [path for file in files if not file.part for path in (file.path, *file.passed_over)]
    if not parts or not others:
        return list(files), []
    names = ", ".join(sorted(path.name for path in others)[:_MOST_NAMED])
    more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
    verb = "is" if len(others) == 1 else "are"
    return parts, [f"{names}{more} {verb} not read: no train, dev or test in the name"]


def parts_not_read(
    task: Task, where: Path, files: Sequence[Found], reach: Reach = ANYWHERE
) -> list[str]:
    """Say what bears the name of a part and is not read, where no file of that part was found.

    Args:
        task: whose files they are.
        where: file or folder that was named.
        files: that were found there.
        reach: how folders are opened.
    """
    if not where.is_dir() or not files:
        return []
    there = {file.part for file in files}
    known = {path for file in files for path in (file.path, *file.passed_over)}
    folders = [path.parent for path in known]
    above = [f.parent for f in folders if _names_a_part(task.layout, f) and f != where]
    notes = []
    for folder in sorted({*folders, *above}):
        for path in reach.children(folder):
            part = next((PARTS[word] for word in _words(path.name) if word in PARTS), None)
            if part is None or part in there or path in known or path.name.startswith("."):
                continue
            why = _why_not(task.layout, path)
            if why:
                notes.append(f"{path.name} is not read: {why}")
    return notes


def _why_not(layout: LocalLayout, path: Path) -> str:
    """Why something called after a part is none, in words; empty where that is meant so."""
    suffix = path.suffix.lower()
    if path.is_symlink() and not path.exists():
        return "it is a link to nothing; fetch what it leads to"
    if path.is_dir():
        return "it is a folder" if suffix_of(path) in layout.suffixes else ""
    if not path.is_file():
        return "it is no file"
    if suffix in _PACKED:
        return "it is packed; unpack it"
    if suffix in _SHEETS:
        return "it is a workbook; save its sheet as CSV"
    if suffix == ".dvc":
        return "it stands for a file that is kept elsewhere; fetch it by `dvc pull`"
    if suffix_of(path) in layout.suffixes or suffix in _BESIDE:
        return ""
    known = ", ".join(suffix or "nothing" for suffix in layout.suffixes)
    return f"it ends in {suffix}, and what is read in {known}"


def _what_lies(folder: Path, reach: Reach) -> str:
    """Name some of what is in a folder, for messages."""
    names = sorted(p.name for p in reach.children(folder) if not p.name.startswith("."))
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}" if names else "nothing"


def _lent(task: Task, found: Sequence[Found], folders: Sequence[Path], reach: Reach) -> list[Found]:
    """The training part from another folder of the task's, as XNLI's is published.

    ``XNLI-1.0`` has what is scored, ``XNLI-MT-1.0/multinli`` what is learned from.
    """
    if task.train_language is None or any(file.part == "train" for file in found):
        return []
    named = [f for f in folders if any(simple(f.name).startswith(n) for n in task.layout.folders)]
    for folder in (below for one in named for below in (one, *_subfolders(one, 1, reach))):
        files = _files_of(task, folder, reach) or []
        own = [f for f in files if f.part == "train" and f.key == task.train_language]
        if own:
            return own
    return []


def _collection(folder: Path, reach: Reach) -> list[Found]:
    """Files of a collection of passages; none where passages or queries are in no file alone."""
    places = [folder, *(p for p in _subfolders(folder, 1, reach) if _collected(p.name))]
    found = [
        Found(path, part, kind, shards=_shards(path))
        for place in places
        for path in sorted(reach.children(place))
        if path.is_file() and suffix_of(path) in _COLLECTION_SUFFIXES
        for kind in [_collected(path.name) or (place != folder and _collected(place.name)) or None]
        for part in [next((PARTS[word] for word in _words(path.name) if word in PARTS), None)]
        if kind
    ]
    kinds = [file.key for file in found]
    several = [file for file in found if file.key == "passages"]
    pieces = {re.sub(r"\d+", "0", file.path.name) for file in several}  # docs-0, docs-1, …
    if len(pieces) > 1 and not all(_SHARD.search(file.path.name) for file in several):
        names = ", ".join(file.path.name for file in found if file.key == "passages")
        raise TaskDataError(
            f"{folder} has several files of passages, {names}; leave there the one that is meant"
        )
    _refuse_lacking_shards(folder, [replace(file, part=None) for file in several])
    return found if {"passages", "queries"} <= set(kinds) else []


def _collected(name: str) -> str | None:
    words = set(_words(name))
    return next((kind for kind, known in COLLECTION.items() if words & known), None)


def _folders(task: Task, where: Path, reach: Reach) -> list[Path]:
    """Folders that may hold the task, those that bear its name first."""
    below = [where, *_subfolders(where, _DEPTH, reach)]
    names = task.layout.folders
    exact = [f for name in names for f in below if simple(f.name) == name]
    begin = [
        folder
        for name in names
        for folder in below
        if simple(folder.name).startswith(name) and not _names_a_language(task.layout, folder)
    ]
    itself = [] if _is_another_tasks(where, task) else [where]
    return list(dict.fromkeys([*exact, *begin, *itself]))


def _subfolders(folder: Path, depth: int, reach: Reach) -> Iterator[Path]:
    children = [p for p in reach.children(folder) if p.is_dir() and not p.name.startswith(".")]
    yield from children
    if depth > 1:
        for child in children:
            yield from _subfolders(child, depth - 1, reach)


def _is_another_tasks(folder: Path, task: Task) -> bool:
    """True if a folder's name says that its files are of another task."""
    if task.name.lower() not in TASKS or not task.layout.folders:
        return False
    name = simple(folder.resolve().name)
    return name not in task.layout.folders and any(
        name in other.layout.folders for other in TASKS.values()
    )


def _files_of(task: Task, folder: Path, reach: Reach) -> list[Found]:
    """Files directly in the folder, or in folders of it that are named after parts or languages."""
    places = _places(task.layout, folder, reach)
    found: dict[tuple[Part | None, str | None, str], Found] = {}
    several: list[str] = []
    is_any = task.suite == OWN_SUITE or not task.layout.folders  # it may lie in any folder
    texts: list[Found] = []
    passed: defaultdict[tuple[Part | None, str | None, str], list[Path]] = defaultdict(list)
    plainest_first = partial(_plainest_first, task.layout)
    paths = [p for place in places for p in sorted(reach.children(place), key=plainest_first)]
    twins = _twins(paths)
    for path in paths:
        if not path.is_file() or path.name.startswith("."):
            continue
        one = _recognised(task.layout, path, path.relative_to(folder), twins.get(path))
        if one is None:
            continue
        if one.part is None and _is_for_people(task, path):
            texts.append(one)
            continue
        place = (one.part, one.key, path.name if one.together else "")
        known = found.setdefault(place, one)
        if known is not one:
            passed[place].append(path)
        if known is not one and one.part is None and is_any:
            several.append(path.name)
    unnamed = (None, None, "")
    if texts and any(part for part, *_ in found):  # told, since one may be a part by another name
        first = found.setdefault(unnamed, texts[0])
        passed[unnamed] += [one.path for one in texts if one is not first]
    elif texts and not found:
        found[unnamed] = texts[0]
        several = [one.path.name for one in texts[1:]]
    for part, key, name in [place for place in found if place[2]]:
        if (part, key, "") in found:  # a whole part has them in it
            passed[part, key, ""].append(found.pop((part, key, name)).path)
    order = list(dict.fromkeys(task.layout.languages.values()))
    files = sorted(
        (replace(file, passed_over=tuple(passed[place])) for place, file in found.items()),
        key=lambda f: (f.part != "train", order.index(f.key) if f.key in order else -1),
    )
    _refuse_lacking_shards(folder, files)
    if is_any:
        _refuse_pieces(files)
    with_part = [file for file in files if file.part]
    if several and not with_part:
        names = ", ".join(sorted([files[0].path.name, *several])[:_MOST_NAMED])
        raise TaskDataError(
            f"{folder} has several files that could be the task, such as {names}; give one of "
            "them, or call them train, dev and test"
        )
    return files


def _is_for_people(task: Task, path: Path) -> bool:
    """Whether a file beside a user's tables may be text to read, unless there is nothing else."""
    return task.suite == OWN_SUITE and task.kind != "tagging" and suffix_of(path) == ".txt"


def _refuse_lacking_shards(folder: Path, files: Sequence[Found]) -> None:
    """Refuse a part of which some files are not there."""
    parts: defaultdict[tuple[Part | None, str | None], list[Found]] = defaultdict(list)
    for file in files:
        if file.shards is not None:
            parts[file.part, file.key].append(file)
    for (part, _), there in parts.items():
        wanted = there[0].shards or 0
        if len(there) > wanted:
            names = ", ".join(file.path.name for file in there[:_MOST_NAMED])
            raise TaskDataError(
                f"{folder} has several files that are all of its {part} part, {names}; leave there "
                "the one that is meant, or give it alone"
            )
        if wanted != len(there):
            raise TaskDataError(
                f"{folder} has {len(there)} of the {wanted} files of its {part} part, such as "
                f"{there[0].path.name}; fetch the others, or call those that are meant {part}"
            )


def _refuse_pieces(files: Sequence[Found]) -> None:
    """Refuse a part in files that differ in a number alone: none of them is the whole."""
    for file in files:
        pieces = {path.name for path in (file.path, *file.passed_over)}
        alike = {re.sub(r"\d+", "0", name) for name in pieces}
        if len(pieces) > 1 and len(alike) == 1:
            names = ", ".join(sorted(pieces)[:_MOST_NAMED])
            of, called = (f" of its {file.part} part", file.part) if file.part else ("", "test")
            raise TaskDataError(
                f"{file.path.parent} has {len(pieces)} files{of} that differ in a number alone, "
                f"{names}; put them into one, or call the one that is meant {called}"
            )


def _plainest_first(layout: LocalLayout, path: Path) -> tuple[int, int, str]:
    """Where several files are the same part, the plainest name is the one that is meant.

    Of equals it is the one that ends as a benchmark's own files do.
    """
    suffix, known = suffix_of(path), layout.suffixes
    return len(path.name), known.index(suffix) if suffix in known else len(known), path.name


def _places(layout: LocalLayout, folder: Path, reach: Reach) -> list[Path]:
    """A folder with those of it, or of a data set of the hub in it, that are parts or languages."""
    below = [p for p in _subfolders(folder, 1, reach) if _names_a_part(layout, p)]
    of_hub = [
        part
        for place in below
        if place.name in _HUB_FOLDERS
        for part in _subfolders(place, 1, reach)
        if _names_a_part(layout, part)
    ]
    return [folder, *below, *of_hub]


def _twins(paths: Sequence[Path]) -> dict[Path, Part]:
    """Parts of files whose names are alike but for ``train`` and ``test`` within a word."""
    alike: defaultdict[tuple[Path, str, str], dict[str, Path]] = defaultdict(dict)
    for path in paths:
        name = path.name.lower()
        for found in _PART_WORDS.finditer(name):
            rest = (path.parent, name[: found.start()], name[found.end() :])
            alike[rest][found[0]] = path
    return {
        path: PARTS[word]
        for of in alike.values()
        if "train" in of and len(of) > 1
        for word, path in of.items()
    }


def _names_a_part(layout: LocalLayout, folder: Path) -> bool:
    # Spark writes a table as a folder that is called as a file.
    named = suffix_of(folder) in layout.suffixes
    words = _words(folder.stem if named else folder.name)
    own = any(simple(folder.name).startswith(name) for name in layout.folders)
    known = [word in PARTS or word in layout.languages for word in words]
    if folder.name in _HUB_FOLDERS:
        return True
    return bool(words) and (all(known) or (own and any(known)))


def _names_a_language(layout: LocalLayout, folder: Path) -> bool:
    """Whether a folder is that of a language of several, as ``mlqa.de.de`` is."""
    return any(word in layout.languages for word in _words(folder.name))


def _recognised(layout: LocalLayout, path: Path, relative: Path, twin: Part | None) -> Found | None:
    suffix = suffix_of(path)
    beside = path.name in _OF_DATASETS or _CACHE.fullmatch(path.name)
    if suffix not in layout.suffixes or beside:
        return None
    if layout.skip and re.search(layout.skip, str(relative), re.IGNORECASE):
        return None
    words = [word for name in relative.parts for word in _words(name)]
    part = next((PARTS[word] for word in words if word in PARTS), twin)
    if part is None and (not suffix or any(word in _NO_DATA for word in words)):
        return None
    languages = {layout.languages[word] for word in words if word in layout.languages}
    if len(languages) > 1:
        return None  # Question and context in different languages.
    key = next(iter(languages), None) or next((w for w in words if w in _VARIANTS), None)
    named = layout.together is not None and re.search(layout.together, path.name, re.IGNORECASE)
    together = named or _PIECE.match(path.name)
    count = _shards(path) if part is not None else None
    return Found(path, part, key, together=bool(together) or count is not None, shards=count)


def _shards(path: Path) -> int | None:
    """Of how many files a name says that it is one."""
    shard = _SHARD.search(path.name)
    return None if shard is None else int(shard[1])


def _words(name: str) -> Sequence[str]:
    return re.findall(r"[a-z]+", name.lower())
