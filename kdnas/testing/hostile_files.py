"""Files that somebody made to hurt, or that came out of an accident: what a command has to survive.

Each :class:`HostileFile` stands in the place of a sound one. A command that is given it has to end
by itself, soon and in a sentence, and may not take the memory that the file would like to have.
Where a file can run code, that code leaves :data:`CANARY` behind.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import pickle
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

CANARY: Final = "the-code-was-run"
"""File in the working folder that only the code of a hostile file makes."""
DEEP: Final = 100_000
_MIB: Final = 2**20


@dataclass(frozen=True)
class HostileFile:
    """A file, or a folder, in the place of a sound one.

    Attributes:
        family: whose place it takes; each has a command (:data:`COMMANDS`).
        name: of the case.
        path: of the file, or of what is changed within a copy of the sound folder.
        make: writes it to that path; the folder is there.
        options: of the command, beside those of the family.
    """

    family: str
    name: str
    path: str
    make: Callable[[Path], Any]
    options: tuple[str, ...] = ()


COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "corpus": ("corpus", "build", "--teacher", "teacher", "--corpus", "{case}/{path}"),
    "teacher": (
        *("full-distill", "--arch", "1,2,24,48,gelu", "--teacher", "{case}", "--steps", "1"),
        *("--corpus", "corpus.txt", "--max-length", "16", "--output", "{case}-student"),
    ),
    "task": ("evaluate", "teacher", "--data-dir", "{case}", "--show-data"),
    "input": ("predict", "model", "--input", "{case}/{path}"),
    "student": ("predict", "{case}", "good film"),
    "table": ("tabular", "show", "{case}/{path}"),
    "graph": ("benchmark-model", "{case}", "--runtime", "onnx", "--length", "8"),
    "request": ("search", "--config", "{case}/{path}"),
}
"""Family → a command that reads the file; ``{case}`` is its folder."""


def command(file: HostileFile, case: str) -> tuple[str, ...]:
    """The words of the command that reads a file which lies in a folder."""
    words = (*COMMANDS[file.family], *file.options)
    return tuple(word.format(case=case, path=file.path) for word in words)


def text(words: str | bytes) -> Callable[[Path], Any]:
    """A file with these words."""
    data = words.encode() if isinstance(words, str) else words
    return lambda path: path.write_bytes(data)


def repeated(piece: bytes, times: int, before: bytes = b"", after: bytes = b"") -> Any:
    """A file of one piece many times."""

    def make(path: Path) -> None:
        with path.open("wb") as file:
            file.write(before)
            many = piece * max(1, min(times, _MIB // len(piece)))
            for _ in range(times * len(piece) // len(many)):
                file.write(many)
            file.write(after)

    return make


def bomb(piece: bytes, mib: int) -> Callable[[Path], Any]:
    """A gzip file that unpacks to so many MiB: one member of 64 MiB, again and again."""

    def make(path: Path) -> None:
        member = gzip.compress(piece * (64 * _MIB // len(piece)), compresslevel=1)
        path.write_bytes(member * (mib // 64))

    return make


def sparse(size: int) -> Callable[[Path], Any]:
    """A file of holes: as large as may be, and nothing on the disk."""

    def make(path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(size)

    return make


def pipe(path: Path) -> None:
    """A named pipe to which nobody writes."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def link_to(target: str) -> Callable[[Path], Any]:
    """A symbolic link."""

    def make(path: Path) -> None:
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    return make


def folder(path: Path) -> None:
    """A folder where a file belongs."""
    path.unlink(missing_ok=True)
    path.mkdir()


def gone(path: Path) -> None:
    """Nothing at all."""
    path.unlink()


def cut(share: float) -> Callable[[Path], Any]:
    """The sound file, of which only a part was copied."""
    return lambda path: os.truncate(path, int(path.stat().st_size * share))


def parquet(columns: Callable[[], dict[str, Any]]) -> Callable[[Path], Any]:
    """A Parquet file with these columns."""
    return lambda path: pq.write_table(pa.table(columns()), path)


def parquet_bomb(path: Path) -> None:
    """A text of 64 MiB in each of many rows, written once as the entry of a dictionary."""
    words = pa.array(["word " * (64 * _MIB // 5)])
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 200, pa.int32()), words)
    pq.write_table(pa.table({"text": column}), path, row_group_size=200, compression="zstd")


def lists_of_one_text(path: Path) -> None:
    """Lists of one text again and again, which is written once: 6 GiB in some kilobytes."""
    words = pa.DictionaryArray.from_arrays(pa.array([0] * 1280, pa.int32()), ["word " * _MIB])
    column = pa.ListArray.from_arrays(pa.array(range(0, 1281, 8), pa.int32()), words)
    pq.write_table(pa.table({"text": column, "label": [1] * 160}), path, compression="zstd")


def texts_of_one_size(path: Path) -> None:
    """A column of bytes of one size, all alike: 1 GiB in some kilobytes."""
    column = pa.array([b"a" * _MIB] * 1024, pa.binary(_MIB))
    pq.write_table(pa.table({"text": column, "label": [1] * 1024}), path, compression="zstd")


def packed_arrow(path: Path) -> None:
    """Two texts of 0.5 GiB each that Arrow has packed by Zstandard."""
    table = pa.table({"text": ["word " * (_MIB * 100)] * 2, "label": [0, 1]})
    packed = pa.ipc.IpcWriteOptions(compression="zstd")
    with (
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema, options=packed) as writer,
    ):
        writer.write_table(table)


def holes(begins: bytes, size: int) -> Callable[[Path], Any]:
    """A file that begins soundly and is one hole from there on."""

    def make(path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(begins)
        os.truncate(path, size)

    return make


def circles(path: Path) -> None:
    """Two links to the folder itself in a folder that a pattern looks through."""
    folder = path.parents[len(path.parts) - 1 - path.parts.index("**")]
    for name in ("one", "two"):
        (folder / name).symlink_to(".")
    (folder / "a" / "b" / "c" / "d" / "e").mkdir(parents=True)


def sequence_student(**values: Any) -> Callable[[Path], Any]:
    """The configuration of a Bi-LSTM in the place of a Transformer's, with these values."""
    sound = {
        **{"model_type": "kdnas-bilstm", "version": 1, "kind": "bilstm", "layers": 1},
        **{"hidden": 48, "embedding_size": 48, "vocab_size": 99, "pad_token_id": 0, "kernel": 5},
        **{"dropout": 0.0, "labels": ["a", "b"], "max_length": 64, "tokenizer_family": "bert"},
    }
    return text(json.dumps({**sound, **values}))


def wide_table(path: Path) -> None:
    """A table with very many columns."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([f"c{number}" for number in range(DEEP)])
        writer.writerow(["x"] * DEEP)


def config(**values: Any) -> Callable[[Path], Any]:
    """The sound configuration with other values; Ellipsis takes a key out."""

    def make(path: Path) -> None:
        whole = {**json.loads(path.read_text("utf-8")), **values}
        path.write_text(json.dumps({k: v for k, v in whole.items() if v is not ...}), "utf-8")

    return make


def weights(header: bytes, length: int | None = None, data: bytes = b"") -> Callable[[Path], Any]:
    """A safetensors file with a header of one's own; ``length`` is what it claims to be long."""
    size = len(header) if length is None else length
    return lambda path: path.write_bytes(struct.pack("<Q", size) + header + data)


def tensors(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Path], Any]:
    """The sound weights, changed."""

    def make(path: Path) -> None:
        from safetensors.torch import load_file, save_file

        save_file(change(load_file(path)), path, metadata={"format": "pt"})

    return make


def _nan(found: dict[str, Any]) -> dict[str, Any]:
    return {name: tensor * float("nan") for name, tensor in found.items()}


def _infinite(found: dict[str, Any]) -> dict[str, Any]:
    return {name: tensor + float("inf") for name, tensor in found.items()}


def _half_gone(found: dict[str, Any]) -> dict[str, Any]:
    return {name: found[name] for name in sorted(found)[::2]}


def _other_shapes(found: dict[str, Any]) -> dict[str, Any]:
    return {name: tensor[..., :1].contiguous() for name, tensor in found.items()}


def _whole_numbers(found: dict[str, Any]) -> dict[str, Any]:
    import torch

    return {name: tensor.to(torch.int32) for name, tensor in found.items()}


def _very_many(found: dict[str, Any]) -> dict[str, Any]:
    import torch

    return {**found, **{f"t{number}": torch.zeros(1) for number in range(200_000)}}


class _Code:
    """Runs a shell command as it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, (f"touch {CANARY}",))


def pickled_code(path: Path) -> None:
    """Weights as torch pickled them once, with code in them, in place of safetensors."""
    path.with_name("model.safetensors").unlink()
    path.write_bytes(pickle.dumps({"weight": _Code()}))


def index(shards: dict[str, str]) -> Callable[[Path], Any]:
    """An index of shards in place of the weights."""

    def make(path: Path) -> None:
        path.with_name("model.safetensors").unlink()
        path.write_text(json.dumps({"metadata": {}, "weight_map": shards}), "utf-8")

    return make


def tokenizer(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], Any]:
    """The sound tokenizer, changed."""

    def make(path: Path) -> None:
        whole = json.loads(path.read_text("utf-8"))
        path.write_text(json.dumps(change(whole)), "utf-8")

    return make


def nested(opening: str, closing: str) -> Callable[[Path], Any]:
    """Brackets within brackets."""
    return text(opening * DEEP + "1" + closing * DEEP)


def own_code(path: Path) -> None:
    """A folder that wants its own Python file loaded."""
    path.with_name("evil.py").write_text(f"open({CANARY!r}, 'w').close()\n", "utf-8")
    names = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model", "AutoTokenizer": "evil.T"}
    config(auto_map=names, model_type="evil")(path)


def gzipped_cut(path: Path) -> None:
    """A gzip file of which the end is missing."""
    path.write_bytes(gzip.compress(b"river stone cloud\n" * 10_000)[:-40])


_YAML_BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)
)
_YAML_MERGES = "a0: &a0 {k0: 1, k1: 1}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 30)
)
_OWN = ("--suite", "own", "--kind", "classification")
_NER = ("--suite", "ner", "--tasks", "NER")
_QA = ("--suite", "squad")
_WEIGHTS, _CONFIG = "model.safetensors", "config.json"

CORPORA: Final = [
    HostileFile(
        "corpus", "gzip that unpacks to 8 GiB of words", "a.txt.gz", bomb(b"word " * 9, 8192)
    ),
    HostileFile("corpus", "gzip that unpacks to 8 GiB of one line", "a.txt.gz", bomb(b"a", 8192)),
    HostileFile("corpus", "gzip of blank lines, 8 GiB", "a.txt.gz", bomb(b"\n", 8192)),
    HostileFile("corpus", "gzip that is none", "a.txt.gz", text("river stone")),
    HostileFile("corpus", "gzip cut short", "a.txt.gz", gzipped_cut),
    HostileFile(
        "corpus", "gzip of JSON lines, 4 GiB in one", "a.jsonl.gz", bomb(b'{"text": "', 4096)
    ),
    HostileFile("corpus", "Parquet that unpacks to 12 GiB", "a.parquet", parquet_bomb),
    HostileFile("corpus", "Parquet of lists, 6 GiB", "a.parquet", lists_of_one_text),
    HostileFile("corpus", "Parquet of one size, 1 GiB", "a.parquet", texts_of_one_size),
    HostileFile("corpus", "links in a circle and a glob", "**/*.nope", circles),
    HostileFile("corpus", "a glob of 40 stars", "**/*/" * 20 + "*.nope", circles),
    HostileFile("corpus", "Parquet of noise", "a.parquet", text(b"PAR1" + bytes(5000) + b"PAR1")),
    HostileFile("corpus", "Parquet without texts", "a.parquet", parquet(lambda: {"n": [1, 2]})),
    HostileFile(
        *("corpus", "Parquet with lists for texts", "a.parquet"),
        parquet(lambda: {"text": [["a"], ["b"]]}),
    ),
    HostileFile(
        *("corpus", "Parquet with bytes for texts", "a.parquet"),
        parquet(lambda: {"text": [b"\xff\xfe", b"\x00"]}),
    ),
    HostileFile("corpus", "a line of 200 MiB", "a.txt", repeated(b"word ", 40 * _MIB)),
    HostileFile("corpus", "a word of 200 MiB", "a.txt", repeated(b"a", 200 * _MIB)),
    HostileFile(
        *("corpus", "a line of JSON of 200 MiB", "a.jsonl"),
        repeated(b"word ", 40 * _MIB, b'{"text": "', b'"}\n'),
    ),
    HostileFile("corpus", "NUL bytes", "a.txt", text(b"river\0stone\0\n" * 400)),
    HostileFile("corpus", "Latin-1", "a.txt", text("für größere Häuser\n".encode("latin-1") * 400)),
    HostileFile("corpus", "UTF-16", "a.txt", text(("river stone\n" * 400).encode("utf-16"))),
    HostileFile(
        "corpus", "half a character at its end", "a.txt", text(b"river\n" * 400 + b"\xe2\x82")
    ),
    HostileFile("corpus", "a named pipe", "a.txt", pipe),
    HostileFile("corpus", "a link to zeros without end", "a.txt", link_to("/dev/zero")),
    HostileFile("corpus", "a link to itself", "a.txt", link_to("a.txt")),
    HostileFile("corpus", "a link to nothing", "a.txt", link_to("nowhere")),
    HostileFile("corpus", "a sparse terabyte", "a.txt", sparse(2**40)),
    HostileFile("corpus", "a folder called a text", "a.txt", folder),
    HostileFile("corpus", "an empty file", "a.txt", text("")),
    HostileFile("corpus", "blank lines only", "a.txt", text("\n \n\t\n" * 1000)),
    HostileFile("corpus", "one text a million times", "a.txt", repeated(b"river\n", 10**6)),
    HostileFile("corpus", "marks upon marks, 20 MiB", "a.txt", repeated("é̂̃".encode(), 2 * _MIB)),
    HostileFile("corpus", "nested JSON lines", "a.jsonl", nested("[", "]")),
    HostileFile("corpus", "nested text in JSON", "a.jsonl", nested('{"text":', "}")),
    HostileFile("corpus", "JSON lines of lists", "a.jsonl", text("[1, 2]\n" * 100)),
    HostileFile(
        "corpus", "JSON lines of numbers for texts", "a.jsonl", text('{"text": 3}\n' * 100)
    ),
    HostileFile(
        "corpus", "JSON with half a surrogate pair", "a.jsonl", text('{"text": "\\ud800"}\n' * 9)
    ),
    HostileFile(
        "corpus",
        "JSON with a number of a million digits",
        "a.jsonl",
        text('{"text": ' + "9" * 10**6 + "}\n"),
    ),
]

TEACHERS: Final = [
    HostileFile("teacher", "hidden size 10^30", _CONFIG, config(hidden_size=10**30)),
    HostileFile("teacher", "hidden size below nothing", _CONFIG, config(hidden_size=-48)),
    HostileFile("teacher", "hidden size in words", _CONFIG, config(hidden_size="forty-eight")),
    HostileFile("teacher", "hidden size null", _CONFIG, config(hidden_size=None)),
    HostileFile("teacher", "hidden size missing", _CONFIG, config(hidden_size=...)),
    HostileFile("teacher", "hidden size infinite", _CONFIG, config(hidden_size=float("inf"))),
    HostileFile("teacher", "10^7 layers", _CONFIG, config(num_hidden_layers=10**7)),
    HostileFile("teacher", "no layers", _CONFIG, config(num_hidden_layers=0)),
    HostileFile("teacher", "no heads", _CONFIG, config(num_attention_heads=0)),
    HostileFile("teacher", "heads that do not divide", _CONFIG, config(num_attention_heads=7)),
    HostileFile("teacher", "a vocabulary of 10^12", _CONFIG, config(vocab_size=10**12)),
    HostileFile("teacher", "no vocabulary", _CONFIG, config(vocab_size=0)),
    HostileFile("teacher", "10^12 positions", _CONFIG, config(max_position_embeddings=10**12)),
    HostileFile("teacher", "10^12 wide inside", _CONFIG, config(intermediate_size=10**12)),
    HostileFile("teacher", "an unknown activation", _CONFIG, config(hidden_act="explode")),
    HostileFile("teacher", "a list for an activation", _CONFIG, config(hidden_act=["gelu"])),
    HostileFile("teacher", "a list for the family", _CONFIG, config(model_type=["bert"])),
    HostileFile("teacher", "no family", _CONFIG, config(model_type=...)),
    HostileFile("teacher", "an unknown family", _CONFIG, config(model_type="evilbert")),
    HostileFile("teacher", "dropout in words", _CONFIG, config(hidden_dropout_prob="much")),
    HostileFile("teacher", "an epsilon of NaN", _CONFIG, config(layer_norm_eps=float("nan"))),
    HostileFile(
        "teacher", "an unknown dtype", _CONFIG, config(dtype="float7", torch_dtype="float7")
    ),
    HostileFile(
        "teacher", "padding outside of the vocabulary", _CONFIG, config(pad_token_id=10**9)
    ),
    HostileFile(
        "teacher",
        "10^6 names of classes",
        _CONFIG,
        config(id2label={str(n): f"c{n}" for n in range(10**6)}),
    ),
    HostileFile("teacher", "code of its own", _CONFIG, own_code),
    HostileFile("teacher", "a nested configuration", _CONFIG, nested('{"a":', "}")),
    HostileFile("teacher", "a configuration that is a list", _CONFIG, text("[]")),
    HostileFile("teacher", "a configuration that is no JSON", _CONFIG, text("{hidden: 48")),
    HostileFile("teacher", "an empty configuration", _CONFIG, text("")),
    HostileFile(
        "teacher",
        "300 MiB of blanks for a configuration",
        _CONFIG,
        repeated(b" ", 300 * _MIB, b"{", b"}"),
    ),
    HostileFile(
        "teacher",
        "a configuration in UTF-16",
        _CONFIG,
        text('{"hidden_size": 48}'.encode("utf-16")),
    ),
    HostileFile("teacher", "a pipe for a configuration", _CONFIG, pipe),
    HostileFile("teacher", "a folder for a configuration", _CONFIG, folder),
    HostileFile("teacher", "zeros without end for a configuration", _CONFIG, link_to("/dev/zero")),
    HostileFile("teacher", "no weights", _WEIGHTS, gone),
    HostileFile("teacher", "empty weights", _WEIGHTS, text("")),
    HostileFile("teacher", "weights cut short", _WEIGHTS, cut(0.5)),
    HostileFile("teacher", "weights of a sparse terabyte", _WEIGHTS, sparse(2**40)),
    HostileFile("teacher", "a header of 2^63 bytes", _WEIGHTS, weights(b"{}", 2**63)),
    HostileFile(
        "teacher", "a header of 90 MB that is not there", _WEIGHTS, weights(b"{}", 90 * 10**6)
    ),
    HostileFile("teacher", "a header that is no JSON", _WEIGHTS, weights(b"{nothing}")),
    HostileFile(
        "teacher", "a nested header", _WEIGHTS, weights(b'{"a":' * DEEP + b"1" + b"}" * DEEP)
    ),
    HostileFile(
        "teacher",
        "tensors beyond the end",
        _WEIGHTS,
        weights(
            json.dumps(
                {"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}
            ).encode()
        ),
    ),
    HostileFile("teacher", "a pipe for weights", _WEIGHTS, pipe),
    HostileFile("teacher", "zeros without end for weights", _WEIGHTS, link_to("/dev/zero")),
    HostileFile("teacher", "a folder for weights", _WEIGHTS, folder),
    HostileFile("teacher", "weights that are no numbers", _WEIGHTS, tensors(_nan)),
    HostileFile("teacher", "infinite weights", _WEIGHTS, tensors(_infinite)),
    HostileFile("teacher", "half of the weights", _WEIGHTS, tensors(_half_gone)),
    HostileFile("teacher", "weights of other shapes", _WEIGHTS, tensors(_other_shapes)),
    HostileFile("teacher", "weights that are whole numbers", _WEIGHTS, tensors(_whole_numbers)),
    HostileFile("teacher", "200 000 tensors more", _WEIGHTS, tensors(_very_many)),
    HostileFile("teacher", "pickled code for weights", "pytorch_model.bin", pickled_code),
    HostileFile(
        "teacher",
        "shards outside of the folder",
        "model.safetensors.index.json",
        index({"a": "../../../../etc/passwd"}),
    ),
    HostileFile(
        "teacher",
        "shards that are not there",
        "model.safetensors.index.json",
        index({f"t{n}": f"model-{n}.safetensors" for n in range(1000)}),
    ),
    HostileFile(
        "teacher",
        "an index that is its own shard",
        "model.safetensors.index.json",
        index({"a": "model.safetensors.index.json"}),
    ),
    HostileFile("teacher", "an index of nothing", "model.safetensors.index.json", index({})),
    HostileFile(
        "teacher",
        "an index that is a list",
        "model.safetensors.index.json",
        index([]),  # type: ignore[arg-type]
    ),
    HostileFile("teacher", "nested modules", "modules.json", nested("[", "]")),
    HostileFile("teacher", "modules of a sparse terabyte", "modules.json", sparse(2**40)),
    HostileFile("teacher", "a vocabulary of a sparse terabyte", "vocab.txt", sparse(2**40)),
    HostileFile("teacher", "a tokenizer of a sparse terabyte", "tokenizer.json", sparse(2**40)),
    HostileFile("teacher", "no tokenizer", "tokenizer.json", gone),
    HostileFile("teacher", "an empty tokenizer", "tokenizer.json", text("")),
    HostileFile("teacher", "a nested tokenizer", "tokenizer.json", nested('{"a":', "}")),
    HostileFile("teacher", "a tokenizer that is a list", "tokenizer.json", text("[]")),
    HostileFile("teacher", "a pipe for a tokenizer", "tokenizer.json", pipe),
    HostileFile(
        "teacher",
        "a tokenizer without words",
        "tokenizer.json",
        tokenizer(lambda t: {**t, "model": {**t["model"], "vocab": {}}}),
    ),
    HostileFile(
        "teacher",
        "a tokenizer of another kind",
        "tokenizer.json",
        tokenizer(lambda t: {**t, "model": {"type": "Evil"}}),
    ),
    HostileFile(
        "teacher",
        "tokens beyond the embeddings",
        "tokenizer.json",
        tokenizer(
            lambda t: {
                **t,
                "model": {
                    **t["model"],
                    "vocab": {word: number + 10**6 for word, number in t["model"]["vocab"].items()},
                },
            }
        ),
    ),
]

TASKS: Final = [
    HostileFile(
        "task", "a label of NaN", "train.jsonl", text('{"text": "a", "label": NaN}\n' * 50), _OWN
    ),
    HostileFile(
        "task",
        "a label of a million digits",
        "train.jsonl",
        text('{"text": "a", "label": ' + "9" * 10**6 + "}\n"),
        _OWN,
    ),
    HostileFile("task", "nested examples", "train.jsonl", nested('{"text":', "}"), _OWN),
    HostileFile("task", "a table of 100 000 columns", "train.csv", wide_table, _OWN),
    HostileFile(
        "task",
        "a quote that never closes, 50 MiB",
        "train.csv",
        repeated(b"a,b\n", 12 * _MIB, b'text,label\n"'),
        _OWN,
    ),
    HostileFile(
        "task", "a cell of 200 MiB", "train.csv", repeated(b"a", 200 * _MIB, b"text,label\n"), _OWN
    ),
    HostileFile("task", "a gzip of 8 GiB", "train.csv.gz", bomb(b"a,1\n", 8192), _OWN),
    HostileFile("task", "Parquet that unpacks to 12 GiB", "train.parquet", parquet_bomb, _OWN),
    HostileFile(
        "task", "Parquet of noise", "train.parquet", text(b"PAR1" + bytes(99) + b"PAR1"), _OWN
    ),
    HostileFile("task", "Parquet of lists, 6 GiB", "train.parquet", lists_of_one_text, _OWN),
    HostileFile("task", "Parquet of one size, 1 GiB", "train.parquet", texts_of_one_size, _OWN),
    HostileFile("task", "packed Arrow of 1 GiB", "train.arrow", packed_arrow, _OWN),
    HostileFile(
        "task", "a hole of 4 GB", "train.csv", holes(b"text,label\na,1\n", 4 * 10**9), _OWN
    ),
    HostileFile("task", "a hole of 4 GB in JSON", "train-v1.1.json", holes(b"{", 4 * 10**9), _QA),
    HostileFile("task", "a pipe", "train.csv", pipe, _OWN),
    HostileFile("task", "zeros without end", "train.csv", link_to("/dev/zero"), _OWN),
    HostileFile("task", "a sparse terabyte", "train.csv", sparse(2**40), _OWN),
    HostileFile("task", "NUL bytes", "train.csv", text(b"text,label\n" + b"a\0b,1\n" * 50), _OWN),
    HostileFile(
        "task",
        "UTF-16",
        "train.csv",
        text(("text,label\n" + "a,1\nb,0\n" * 50).encode("utf-16")),
        _OWN,
    ),
    HostileFile("task", "a workbook", "train.xlsx", text(b"PK\3\4" + bytes(100)), _OWN),
    HostileFile("task", "an empty file", "train.csv", text(""), _OWN),
    HostileFile("task", "a link to itself", "train.csv", link_to("train.csv"), _OWN),
    HostileFile(
        "task",
        "a column file of 100 000 columns",
        "train.conll",
        text(" ".join(["x"] * DEEP) + "\n"),
        _NER,
    ),
    HostileFile(
        "task", "a sentence of a million words", "train.conll", repeated(b"a O\n", _MIB), _NER
    ),
    HostileFile(
        "task", "a column file of bytes", "train.conll", text(bytes(range(256)) * 100), _NER
    ),
    HostileFile("task", "nested questions", "train-v1.1.json", nested('{"data":[', "]}"), _QA),
    HostileFile(
        "task",
        "answers far outside",
        "train-v1.1.json",
        text(
            json.dumps(
                {
                    "data": [
                        {
                            "paragraphs": [
                                {
                                    "context": "a",
                                    "qas": [
                                        {
                                            "id": "1",
                                            "question": "b",
                                            "answers": [{"text": "z", "answer_start": 10**30}],
                                        }
                                    ],
                                }
                            ]
                        }
                    ]
                }
            )
        ),
        _QA,
    ),
    HostileFile("task", "questions that are a list", "train-v1.1.json", text("[]"), _QA),
]

INPUTS: Final = [
    HostileFile("input", "a line of 100 MiB", "a.txt", repeated(b"word ", 20 * _MIB)),
    HostileFile("input", "zeros without end", "a.txt", link_to("/dev/zero")),
    HostileFile("input", "NUL bytes", "a.txt", text(b"good\0film\n")),
    HostileFile("input", "nested JSON", "a.jsonl", nested("[", "]")),
    HostileFile("input", "JSON of SQuAD that is a number", "a.json", text("3")),
    HostileFile("input", "JSON of SQuAD of a sparse terabyte", "a.json", sparse(2**40)),
    HostileFile("input", "a table of 100 000 columns", "a.csv", wide_table),
    HostileFile("input", "Latin-1", "a.txt", text("größer\n".encode("latin-1"))),
]

STUDENTS: Final = [
    HostileFile("student", "nested notes", "task.json", nested("[", "]")),
    HostileFile("student", "notes of a sparse terabyte", "task.json", sparse(2**40)),
    HostileFile("student", "a length in words", "task.json", config(max_length="x")),
    HostileFile("student", "a length below nothing", "task.json", config(max_length=-7)),
    HostileFile("student", "a Bi-LSTM of 10^30", _CONFIG, sequence_student(hidden=10**30)),
    HostileFile("student", "a Bi-LSTM of 10^7 layers", _CONFIG, sequence_student(layers=10**7)),
    HostileFile(
        "student",
        "a Bi-LSTM of 10^13 numbers",
        _CONFIG,
        sequence_student(layers=1000, hidden=60_000),
    ),
    HostileFile("student", "a Bi-LSTM without its weights", _CONFIG, sequence_student()),
    HostileFile(
        "student",
        "a Bi-LSTM of an unknown family",
        _CONFIG,
        sequence_student(tokenizer_family="evil"),
    ),
]

TABLES: Final = [
    HostileFile("table", "noise", "a.parquet", text(b"PAR1" + bytes(99) + b"PAR1")),
    HostileFile("table", "other columns", "a.parquet", parquet(lambda: {"n": [1, 2]})),
    HostileFile("table", "that unpacks to 12 GiB", "a.parquet", parquet_bomb),
    HostileFile("table", "100 000 columns", "a.csv", wide_table),
    HostileFile("table", "a pipe", "a.csv", pipe),
    HostileFile("table", "zeros without end", "a.csv", link_to("/dev/zero")),
    HostileFile("table", "a cell of 200 MiB", "a.csv", repeated(b"a", 200 * _MIB)),
    HostileFile("table", "an empty file", "a.csv", text("")),
]

GRAPHS: Final = [
    HostileFile("graph", "noise", "model.onnx", text(bytes(range(256)) * 100)),
    HostileFile("graph", "an empty file", "model.onnx", text("")),
    HostileFile("graph", "a pipe", "model.onnx", pipe),
    HostileFile("graph", "zeros without end", "model.onnx", link_to("/dev/zero")),
]

REQUESTS: Final = [
    HostileFile("request", "aliases that unfold to 9^30", "a.yaml", text(_YAML_BOMB)),
    HostileFile("request", "merges that unfold to 9^30", "a.yaml", text(_YAML_MERGES)),
    HostileFile("request", "a merge of itself", "a.yaml", text("a: &a {<<: *a}\n")),
    HostileFile("request", "an alias of itself", "a.yaml", text("a: &a [*a]\n")),
    HostileFile(
        "request",
        "code in a tag",
        "a.yaml",
        text(f"!!python/object/apply:os.system ['touch {CANARY}']\n"),
    ),
    HostileFile("request", "nested lists", "a.yaml", nested("[", "]")),
    HostileFile("request", "nested objects", "a.json", nested('{"a":', "}")),
    HostileFile("request", "noise", "a.yaml", text(bytes(range(256)))),
    HostileFile("request", "tabs", "a.yaml", text("teacher:\n\tref: a\n")),
    HostileFile("request", "a number for all", "a.yaml", text("3\n")),
    HostileFile("request", "a pipe", "a.yaml", pipe),
    HostileFile("request", "zeros without end", "a.yaml", link_to("/dev/zero")),
    HostileFile("request", "a sparse terabyte", "a.yaml", sparse(2**40)),
    HostileFile("request", "a folder", "a.yaml", folder),
    HostileFile("request", "UTF-16", "a.yaml", text("seed: 1\n".encode("utf-16"))),
    HostileFile("request", "two entries of one name", "a.yaml", text("seed: 1\nseed: 2\n")),
    HostileFile(
        "request",
        "a date, a set and bytes",
        "a.yaml",
        text("seed: 2026-01-01\nname: !!set {a, b}\ngoal: !!binary aGk=\n"),
    ),
]

FILES: Final = [
    *(*CORPORA, *TEACHERS, *TASKS, *INPUTS, *STUDENTS, *TABLES, *GRAPHS, *REQUESTS),
]


def lay(file: HostileFile, case: Path, sound: Path | None) -> None:
    """Make a file in its folder.

    Args:
        file: to make.
        case: folder to make it in; made here.
        sound: folder of the sound one, which is copied first; None where a file stands alone.
    """
    if sound is None:
        case.mkdir()
    else:
        shutil.copytree(sound, case)
    file.make(case / file.path)
