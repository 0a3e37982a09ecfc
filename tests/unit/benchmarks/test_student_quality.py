"""The pure parts of a benchmark: reading tasks, scores, intervals. Needs none of its packages."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from kdnas.errors import RequestError

PROGRAMS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "student_quality", PROGRAMS / "student_quality.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its module up there, to resolve its annotations.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "student_quality", module)
        patch.syspath_prepend(PROGRAMS)
        spec.loader.exec_module(module)
    return module


def write_cola(folder: Path, name: str, count: int) -> None:
    (folder / "CoLA").mkdir(exist_ok=True)
    lines = [f'src\t{i % 2}\t*\tsentence "{name} {i}\n' for i in range(count)]
    (folder / "CoLA" / f"{name}.tsv").write_text("".join(lines))


def test_matthews_of_known_tables(program: ModuleType) -> None:
    truth = np.array([1, 1, 1, 0, 0, 0])
    assert program.matthews(truth, truth) == pytest.approx(1)
    assert program.matthews(truth, 1 - truth) == pytest.approx(-1)
    assert program.matthews(truth, np.ones(6, int)) == 0
    guesses = np.array([1, 1, 0, 1, 0, 0])  # TP 2, FN 1, FP 1, TN 2
    assert program.matthews(truth, guesses) == pytest.approx((2 * 2 - 1 * 1) / 9)


def test_official_dev_set_is_the_test(program: ModuleType, tmp_path: Path) -> None:
    write_cola(tmp_path, "train", 20)
    write_cola(tmp_path, "dev", 6)
    task = program.read_task(tmp_path, "CoLA", 8)
    assert task.official
    assert len(task.train) == 8
    assert task.test == [f'sentence "dev {i}' for i in range(6)]
    assert task.test_labels.tolist() == [0, 1] * 3
    for sentence, label in zip(task.train, task.train_labels, strict=True):
        assert int(sentence.split()[-1]) % 2 == label


def test_without_dev_set_a_fifth_is_held_out(program: ModuleType, tmp_path: Path) -> None:
    write_cola(tmp_path, "train", 20)
    task = program.read_task(tmp_path, "CoLA", 0)
    assert not task.official
    assert len(task.test) == 4
    assert len(set(task.train) | set(task.test)) == 20


def test_another_layout_is_refused_with_the_file(program: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "SST-2").mkdir()
    (tmp_path / "SST-2" / "train.tsv").write_text("sentence\tlabel\nfine\tpositive\n")
    with pytest.raises(RequestError, match=r"train\.tsv is not in the official layout of SST-2"):
        program.read_task(tmp_path, "SST-2", 0)
    with pytest.raises(RequestError, match="is not there; give GLUE's folder"):
        program.read_task(tmp_path, "CoLA", 0)


def test_bootstrap_covers_the_score_and_is_paired(program: ModuleType) -> None:
    rng = np.random.default_rng(1)
    truth = rng.integers(2, size=400)
    guesses = np.where(rng.random(400) < 0.8, truth, 1 - truth)
    task = program.Task("SST-2", "accuracy", [], truth[:0], [""] * 400, truth, True)
    low, high = program.interval(program.bootstrap(task, [guesses]))
    score = task.score(truth, guesses)
    assert low < score < high
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(score * (1 - score) / 400), rel=0.15)
    # The same draws for every model: two equal models differ by nothing.
    assert program.summarize(task, [guesses], [guesses])["gain_interval"] == (0, 0)


def test_a_student_tells_its_text(program: ModuleType, tmp_path: Path) -> None:
    assert program.record(tmp_path) is None
    request = {
        "architecture": "1,2,24,48,gelu",
        "teacher": {"ref": "/models/bert"},
        "training": {"steps": 7, "batch_size": 8, "seed": 3},
        "corpus": {"source": ["/somewhere/texts", "hub:owner/name"], "max_length": 64},
    }
    run = {"step": 5, "losses": {"relative": 0.25}}
    known = {"corpus_fingerprint": "00ff", "corpus_training_sequences": 90}
    (tmp_path / "distillation.json").write_text(json.dumps(request))
    (tmp_path / "run.json").write_text(json.dumps(run | known))
    made = program.record(tmp_path)
    assert program.corpus_of(*made) == {"corpus_source": ["texts", "hub:owner/name"], **known}
    assert program.history(*made) == (
        "`1,2,24,48,gelu` from bert, 7 steps of 8 sequences of at most 64 tokens of texts, "
        "hub:owner/name (90 training sequences, corpus `00ff`), seed 3, held-out relative loss "
        "0.250 at step 5"
    )
    assert "of texts, hub:owner/name, seed 3" in program.history(request, run)


def test_students_of_one_name_are_runs(program: ModuleType) -> None:
    assert program.students_of(["hs=a", "od=b", "hs=c=d"]) == {"hs": ["a", "c=d"], "od": ["b"]}
    with pytest.raises(RequestError, match="'hs' is not NAME=FOLDER"):
        program.students_of(["hs"])
