"""The teacher's states on some text: collected once, and drawn by the corpus alone."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kdnas.corpus.tokenized import build_corpus
from kdnas.distill import calibration
from kdnas.distill.calibration import (
    KIND,
    calibration_problem,
    calibration_sequences,
    calibration_states,
    training_tokens,
)
from kdnas.distill.numerics import Device, num_threads
from kdnas.errors import CorpusError, StoreError
from kdnas.models.start.states import TeacherStates
from kdnas.models.teacher import load_teacher_model
from kdnas.specs.parts import CorpusSpec
from kdnas.store import MADE_OF, Store
from kdnas.testing.small_disk import small_disk
from kdnas.testing.tiny_lab import TinyLab

TOKENS = 600

IN_ANOTHER_PROCESS = """
import json, sys
from pathlib import Path
from kdnas.corpus.tokenized import TokenizedCorpus
from kdnas.distill import calibration
from kdnas.models.teacher import load_teacher_model, open_teacher
from kdnas.store import Store

work = json.loads(sys.stdin.read())
store = Store(work["store"], Path(work["cache"]))
teacher = open_teacher(work["teacher"], store)
corpus = TokenizedCorpus.open(store.fetch("corpus", work["corpus"]))
collected = []
collect = calibration._collect
calibration._collect = lambda *given: (collected.append(1), collect(*given))
model = load_teacher_model(teacher)
states = calibration.calibration_states(teacher, model, corpus, work["tokens"], store, "cpu")
print(json.dumps([len(collected), states.folder.name, states.num_tokens]))
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store of its own, for states alone."""
    return Store(str(tmp_path / "store"), tmp_path / "cache")


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders into which states were collected; they are collected all the same."""
    folders: list[Path] = []
    collect = calibration._collect

    def watched(*given: object) -> None:
        folders.append(given[-1])
        collect(*given)

    monkeypatch.setattr(calibration, "_collect", watched)
    return folders


def states_of(lab: TinyLab, store: Store, tokens: int = TOKENS) -> TeacherStates:
    model = load_teacher_model(lab.teacher)
    return calibration_states(lab.teacher, model, lab.corpus, tokens, store, "cpu")


def test_states_are_collected_once(lab: TinyLab, store: Store, collected: list[Path]) -> None:
    first, second = states_of(lab, store), states_of(lab, store)
    assert len(collected) == 1
    assert first.folder == second.folder
    assert TOKENS <= first.num_tokens < TOKENS + 24  # at most one sequence more
    made_of = store.manifest(KIND, first.folder.name).metadata[MADE_OF]
    assert made_of == [lab.teacher.fingerprint, lab.corpus.fingerprint]


def test_another_process_takes_what_is_there(lab: TinyLab) -> None:
    here = states_of(lab, lab.store)
    work = {
        "store": lab.store.url,
        "cache": str(lab.store.cache_dir),
        "teacher": lab.teacher.fingerprint,
        "corpus": lab.corpus.fingerprint,
        "tokens": TOKENS,
    }
    there = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS],
        input=json.dumps(work),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(there.stdout) == [0, here.folder.name, here.num_tokens]


def test_of_two_at_once_one_collects(lab: TinyLab, store: Store, collected: list[Path]) -> None:
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: states_of(lab, store), range(2)))
    assert len(collected) == 1
    assert found[0].folder == found[1].folder


def test_states_are_equal_to_the_bit_whoever_collects_them(lab: TinyLab, tmp_path: Path) -> None:
    def collected_by(name: str, threads: int, device: Device) -> TeacherStates:
        own = Store(str(tmp_path / name), tmp_path / f"{name}-cache")
        # A model of a GPU is not asked: this one could not be run at all.
        model = load_teacher_model(lab.teacher).to("cpu" if device == "cpu" else "meta")
        with num_threads(threads):
            return calibration_states(lab.teacher, model, lab.corpus, 4000, own, device)

    one = collected_by("one", 1, "cpu")
    for other in (collected_by("two", 2, "cpu"), collected_by("gpu", 2, "cuda")):
        for file in sorted(one.folder.glob("*.npy")):
            assert (np.load(file) == np.load(other.folder / file.name)).all(), file.name


@pytest.mark.parametrize("size", [100, 5000, 20_000])
def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    lab: TinyLab, store: Store, size: int
) -> None:
    with small_disk(size), pytest.raises(StoreError, match=r"cannot write to .*: File too large"):
        states_of(lab, store)
    assert not list(store.cache_dir.parent.rglob("*.npy"))


def test_another_number_of_tokens_is_another_artefact(
    lab: TinyLab, store: Store, collected: list[Path]
) -> None:
    few, many = states_of(lab, store, 300), states_of(lab, store, 900)
    assert len(collected) == 2
    assert few.folder != many.folder
    assert few.num_tokens < many.num_tokens


def test_a_teacher_cut_to_its_first_layers_has_states_of_its_own(
    lab: TinyLab, store: Store
) -> None:
    shape = replace(lab.teacher.shape, layers=2)
    cut = replace(lab.teacher, shape=shape, keep_layers=2)
    model = load_teacher_model(cut)
    states = calibration_states(cut, model, lab.corpus, TOKENS, store, "cpu")
    assert states.num_layers == 2
    assert states.folder != states_of(lab, store).folder


def test_sequences_are_drawn_by_the_corpus_alone(lab: TinyLab) -> None:
    chosen = calibration_sequences(lab.corpus, TOKENS)
    assert (chosen == calibration_sequences(lab.corpus, TOKENS)).all()
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(lab.corpus.train_indices)
    lengths = lab.corpus.lengths[chosen]
    assert (np.diff(lengths) >= 0).all()
    assert lengths.sum() >= TOKENS
    # More of the same: fewer tokens are a part of more.
    assert set(chosen) < set(calibration_sequences(lab.corpus, 2 * TOKENS))


def test_no_more_is_taken_than_there_is(lab: TinyLab) -> None:
    chosen = calibration_sequences(lab.corpus, 10**9)
    assert set(chosen) == set(lab.corpus.train_indices)
    assert lab.corpus.lengths[chosen].sum() == training_tokens(lab.corpus)


def test_what_it_takes_is_two_tokens_a_channel(lab: TinyLab) -> None:
    shape = lab.teacher.shape
    assert shape.hidden == 48
    assert calibration_problem(shape, 96, 256) is None
    short = calibration_problem(shape, 95, 256)
    assert short is not None
    assert "at least 96 tokens" in short
    assert short.endswith("there are 95")
    asked = calibration_problem(shape, 5000, 80)
    assert asked is not None
    assert asked.endswith("student.calibration_tokens asks for 80")


def test_too_little_text_is_refused(lab: TinyLab, store: Store, tmp_path: Path) -> None:
    lines = [" ".join("abcdefghijklmnopqrst"[i : i + 3]) for i in range(16)]
    (tmp_path / "few.txt").write_text("\n".join(lines) + "\n", "utf-8")
    spec = CorpusSpec(source=(str(tmp_path / "few.txt"),), held_out_fraction=0.1)
    short = replace(lab, corpus=build_corpus(spec, lab.teacher.folder, store))
    there = training_tokens(short.corpus)
    with pytest.raises(CorpusError, match=rf"there are {there}; give more text.*init warm"):
        states_of(short, store)
