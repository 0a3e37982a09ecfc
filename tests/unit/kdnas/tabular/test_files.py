"""Tables in files: the same when they are read again, and refused in a sentence."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from kdnas.architecture import ACTIVATIONS, Architecture
from kdnas.errors import RequestError, SpecError, StoreError
from kdnas.reach import Reach
from kdnas.tabular.card import trainings_of
from kdnas.tabular.files import arrow_reader, dump_table, read_table, write_table
from kdnas.tabular.table import Key, StateRow, Table, TableRow

HEAD = "layers,heads,hidden,intermediate,activation,loss,latency_ms"
STATE = "1,2,24,48,gelu"

losses = st.floats(0, 1e6)
positive = st.floats(1e-6, 1e6)
architectures = st.builds(
    lambda layers, heads, width, intermediate, activation: Architecture(
        layers, heads, heads * width, intermediate, activation
    ),
    st.integers(1, 12),
    st.integers(1, 4),
    st.integers(1, 64),
    st.integers(1, 512),
    st.sampled_from(ACTIVATIONS),
)
small = st.integers(0, 1000)
keys = st.builds(
    lambda a, seed, schedule, share: Key(a, seed, schedule, int(share * schedule)),
    architectures,
    small,
    small,
    st.floats(0, 1),
)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    found = draw(st.lists(keys, min_size=1, max_size=6, unique=True))
    optional = st.none() | losses
    rows = tuple(TableRow(key, draw(losses), draw(optional), draw(optional)) for key in found)
    states = {
        key.architecture: StateRow(draw(positive), draw(st.none() | positive)) for key in found
    }
    return Table(rows, states, draw(st.none() | positive), {"corpus": ["pydocs"]})


@given(table=tables(), ending=st.sampled_from([".csv", ".parquet"]))
def test_a_table_is_the_same_when_it_is_read_again(
    table: Table, ending: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("tables") / f"table{ending}"
    write_table(table, path)
    again = read_table(path)
    assert again.rows == table.rows
    assert again.states == table.states
    assert again.teacher_ms == table.teacher_ms
    card = {**table.card, "trainings": [str(one) for one in trainings_of(table)]}
    assert again.card == (card if ending == ".parquet" else {})


def test_a_users_own_table_needs_axes_loss_and_latency(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(f"{HEAD}\n{STATE},0.25,3\n2,2,24,48,relu,1,6.5\n")
    table = read_table(path)
    assert [row.key for row in table.rows] == [
        Key(Architecture(1, 2, 24, 48, "gelu"), 0, 0, 0),
        Key(Architecture(2, 2, 24, 48, "relu"), 0, 0, 0),
    ]
    assert [row.loss for row in table.rows] == [0.25, 1.0]
    assert table.teacher_ms is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty; its first row names the columns layers, heads, hidden, intermediate, "),
        ("\n\n", "is empty; its first row"),
        (HEAD + "\n", "has no row"),
        (f"{HEAD}\n{STATE},NA,3\n", "loss is 'NA'; give a number"),
        (f"{HEAD.replace('loss', 'los')}\n{STATE},0.2,3", "has no column 'loss'"),
        (",".join(f"c{n}" for n in range(1000)) + "\n", "c10, c11, … (1000 in all)"),
        (f"{HEAD},lateny\n{STATE},0.2,3,4", "unknown column 'lateny'"),
        (
            f"{HEAD}\n2,2,24,48,gelu,1,3\n{STATE},0.2,3\n{STATE},0.3,3",
            "rows 2 and 3 of TABLE are both of 1,2,24,48,gelu; leave one of them out",
        ),
        (
            f"{HEAD},step,schedule\n{STATE},0.2,3,0,60\n{STATE},0.3,3,60,60\n{STATE},0.4,3,0,60",
            "rows 1 and 3 of TABLE are both of 1,2,24,48,gelu (schedule 60, step 0); leave one",
        ),
        (f"{HEAD}\n{STATE},,3\n", "row 1 of "),
        (f"{HEAD}\n{STATE},0.2,3\n2,2,24,48,gelu,0.2,\n", "row 2 of "),
        (f"{HEAD}\n{STATE},nan,3\n", "loss is nan; give a number"),
        (f"{HEAD}\n{STATE},much,3\n", "row 1 of "),
        (
            f"{HEAD}\n{STATE},0.5,3\n2,2,24,48,gelu,1,3\n3,2,24,48,gelu,abc,3\n",
            "row 3 of TABLE: loss is 'abc'; give a number",
        ),
        (f"{HEAD}\n{STATE},true,3\n", "row 1 of TABLE: loss is 'true'; give a number"),
        (f"{HEAD}\n{STATE},0.2,1_0\n", "row 1 of TABLE: latency_ms is '1_0'; give a number"),
        (f"{HEAD}\n{STATE},2020-01-01,3\n", "loss is '2020-01-01'; give a number"),
        (f"{HEAD}\n1,2,24,48,,0.2,3\n", "row 1 of TABLE: it has no activation; fill it in"),
        (f"{HEAD}\n{STATE},-1,3\n", "TABLE: the loss of 1,2,24,48,gelu is -1.0; give a number"),
        (f"{HEAD}\n{STATE},0.2,-3\n", "is -3.0; give milliseconds above 0"),
        (f"{HEAD}\n1,5,24,48,gelu,0.2,3\n", "row 1 of "),
        (f"{HEAD}\n1.5,2,24,48,gelu,0.2,3\n", "row 1 of "),
        (f"{HEAD}\n1,2,24,48,tanh,0.2,3\n", "row 1 of "),
        (
            f"{HEAD},seed\n{STATE},0.2,3,0\n{STATE},0.2,4,1\n",
            "rows 1 and 2 of TABLE have two latencies or sizes of 1,2,24,48,gelu, 3.0 ms and 4.0 ",
        ),
        (f"{HEAD},seed\n{STATE},0.2,3,x\n", "row 1 of "),
        (f"{HEAD},seed\n{STATE},0.2,3,\n2,2,24,48,gelu,0.2,3,0\n", "it has no seed; fill it in"),
        (f"{HEAD},teacher_ms\n{STATE},0.2,3,abc\n", "teacher_ms is 'abc'; give a number"),
        (f"{HEAD},params_millions\n{STATE},0.2,3,nan\n", "params_millions is nan; give a number"),
        (f"{HEAD},step\n{STATE},0.2,3,60\n", "seed 0, step 60 of 0 is no reading"),
        (f"{HEAD},seed\n{STATE},0.2,3,-3\n", "seed -3, step 0 of 0 is no reading"),
        (f"{HEAD},teacher_ms\n{STATE},0.2,3,9\n2,2,24,48,gelu,1,3,8\n", "has several teacher_ms"),
        (
            f"{HEAD},teacher_ms\n{STATE},0.2,3,9\n2,2,24,48,gelu,1,3,\n",
            "it has no teacher_ms, and other rows have one; fill it in, or leave the column out",
        ),
        (f"{HEAD}\n{STATE},0.2,3,4\n", "row 1 of TABLE has 8 values for 7 columns; give one for"),
        (f"{HEAD}\n{STATE},1,3\n\n{STATE},0.2\n", "row 2 of TABLE has 6 values for 7 columns"),
    ],
)
def test_what_is_no_table_is_refused_in_a_sentence(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "own.csv"
    path.write_text(content)
    with pytest.raises(SpecError) as raised:
        read_table(path)
    message = str(raised.value)
    assert said.replace("TABLE", str(path)) in message
    assert str(path) in message
    assert "\n" not in message


def test_files_of_another_kind_than_their_ending_are_refused_in_a_sentence(tmp_path: Path) -> None:
    text = f"{HEAD}\n{STATE},0.2,3\n"
    named = tmp_path / "named.parquet"
    named.write_text(text)
    said = (
        r"named\.parquet is no Parquet file: it begins with b'laye', not b'PAR1'; if it is text, "
    )
    with pytest.raises(SpecError, match=f"{said}let its name end in .csv$"):
        read_table(named)
    own = tmp_path / "own.csv"
    for content in (
        *(text.encode(encoding) for encoding in ("utf-16", "utf-16-le", "utf-16-be")),
        text.replace("gelu", "gél").encode("latin-1"),
        b"PAR1\0\0",
    ):
        own.write_bytes(content)
        said = r"own\.csv is no text in UTF-8, as a CSV file has to be; save it as that$"
        with pytest.raises(SpecError, match=said):
            read_table(own)
    own.write_bytes(text.encode("utf-8-sig"))
    assert len(read_table(own).rows) == 1


def test_a_table_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kdnas.tabular.files.MOST_ROWS", 2)
    rows = "\n".join(f"{n},2,24,48,gelu,0.2,3" for n in (1, 2, 3))
    path = tmp_path / "own.csv"
    path.write_text(f"{HEAD}\n{rows}\n")
    with pytest.raises(SpecError, match="has 3 rows, and at most 2 are read; leave some out"):
        read_table(path)
    monkeypatch.setattr("kdnas.tabular.files.MOST_BYTES", 16)
    with pytest.raises(SpecError, match="has more than the 0 MiB of a table; leave rows out"):
        read_table(path)


def columns(count: int, **others: object) -> dict[str, object]:
    sizes = {"layers": 1, "heads": 2, "hidden": 24, "intermediate": 48}
    known = {name: pa.array([value] * count) for name, value in sizes.items()}
    texts = {"activation": pa.array(["gelu"] * count)}
    return {**known, **texts, "loss": [0.2] * count, "latency_ms": [3.0] * count, **others}


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"loss": [[0.1] * 9, [0.1]]}, "holds list<element: double> as loss; give a value a row"),
        ({"loss": pa.array([b"abcd"] * 2, pa.binary(4))}, "as loss; give a value a row"),
        (
            # 20 GB if it was unfolded, and 20 MB in the file
            {
                "activation": pa.DictionaryArray.from_arrays(
                    pa.array([0, 0], pa.int32()), pa.array(["a" * 20_000_000])
                )
            },
            "has 20000000 bytes in one value of activation; check the column",
        ),
        ({"activation": ["b" * 2000] * 2}, "has 2000 bytes in one value of activation"),
    ],
)
def test_what_unfolds_to_more_than_a_table_is_refused(
    tmp_path: Path, others: dict[str, object], said: str
) -> None:
    path = tmp_path / "own.parquet"
    parquet.write_table(pa.table(columns(2, **others)), path, compression="zstd")
    with pytest.raises(SpecError) as raised:
        read_table(path)
    assert said in str(raised.value)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
def test_a_text_that_is_meant_often_is_measured_before_it_is_unfolded(
    tmp_path: Path, kind: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sizes = tmp_path / "own.parquet", []
    texts = pa.array(["a" * 1_000_000] * 20, kind)
    parquet.write_table(pa.table(columns(20, activation=texts)), path, compression="zstd")
    read = parquet.ParquetFile.read

    def measured(file: parquet.ParquetFile) -> pa.Table:
        sizes.append(read(file).nbytes)
        return read(file)

    monkeypatch.setattr(parquet.ParquetFile, "read", measured)
    with pytest.raises(SpecError, match="has 1000000 bytes in one value of activation"):
        read_table(path)
    assert sizes[0] < 2_000_000


def test_rows_of_a_parquet_file_are_counted_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet.ParquetFile, "read", lambda _: pytest.fail("it was read"))
    path = tmp_path / "own.parquet"
    parquet.write_table(pa.table(columns(500_001)), path)
    with pytest.raises(SpecError, match="has 500001 rows, and at most 500000 are read"):
        read_table(path)


@pytest.mark.parametrize("card", [b"[1]", b"[" * 100_000, b"nothing"])
def test_a_card_that_is_none_is_refused(tmp_path: Path, card: bytes) -> None:
    path = tmp_path / "own.parquet"
    whole = pa.table(columns(1)).replace_schema_metadata({b"kdnas": card})
    parquet.write_table(whole, path)
    with pytest.raises(SpecError, match="holds a card that is no JSON object; write the table"):
        read_table(path)


def test_a_table_out_of_reach_is_not_opened(tmp_path: Path) -> None:
    root, secret = tmp_path / "root", tmp_path / "secret.csv"
    root.mkdir()
    secret.write_text("a password\n")
    (root / "own.csv").symlink_to(secret)
    with pytest.raises(RequestError, match="leads out of the folders") as raised:
        read_table(root / "own.csv", Reach.below([root]))
    assert "password" not in str(raised.value)


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    key = Key(Architecture(1, 2, 24, 48, "gelu"), 0, 60, 60)
    table = Table((TableRow(key, 0.5),), {key.architecture: StateRow(1.0)})
    with pytest.raises(SpecError, match=r"cannot be read \(No such file"):
        read_table(tmp_path / "nobody.csv")
    with pytest.raises(SpecError, match=r"unknown file ending '\.xlsx'"):
        read_table(tmp_path / "own.xlsx")
    with pytest.raises(SpecError, match=r"unknown file ending '\.json'"):
        dump_table(table, ".json")
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"file/t\.csv could not be written \(\w+ "):
        write_table(table, tmp_path / "file" / "t.csv")
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(dump_table(table, ".parquet")[:-20])
    with pytest.raises(
        SpecError, match=r"broken\.parquet is a damaged Parquet file; write it anew$"
    ):
        read_table(broken)
    card = tmp_path / "card.parquet"
    write_table(Table(table.rows, table.states, None, {"a": math.pi}), card)
    assert read_table(card).card["a"] == math.pi


def test_arrow_keeps_nothing_of_pythons() -> None:
    """Or a thread of it that lets go as the program ends aborts the process."""
    data = bytes(range(256))
    before = sys.getrefcount(data)
    reader = arrow_reader(data)
    assert sys.getrefcount(data) == before
    assert reader.read() == data
