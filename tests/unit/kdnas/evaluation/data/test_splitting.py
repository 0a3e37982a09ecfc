from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.splitting import for_tuning, split
from kdnas.evaluation.tasks.examples import Example, TaskData, TextExample
from kdnas.evaluation.tasks.registry import TASKS


def examples(texts: Sequence[object], language: str = "") -> list[Example]:
    return [TextExample(str(n), f"{language}{text}", "b", "x") for n, text in enumerate(texts)]


@given(st.lists(st.integers(0, 30), min_size=2, max_size=80), st.integers(0, 99))
def test_a_split_keeps_everything_once_and_texts_together(texts: list[int], seed: int) -> None:
    if len(set(texts)) < 2:
        with pytest.raises(TaskDataError, match="cannot be split"):
            split(TASKS["rte"], {"dev": examples(texts)}, seed)
        return
    train, evaluations = split(TASKS["rte"], {"dev": examples(texts)}, seed)
    scored = evaluations["dev"]
    assert sorted(int(e.id) for e in (*train, *scored)) == list(range(len(texts)))
    assert train
    assert scored
    trained = {e.text for e in train if isinstance(e, TextExample)}
    assert not trained & {e.text for e in scored if isinstance(e, TextExample)}
    assert [int(e.id) for e in train] == sorted(int(e.id) for e in train)
    assert split(TASKS["rte"], {"dev": examples(texts)}, seed) == (train, evaluations)


@given(st.integers(10, 300), st.integers(0, 99))
def test_a_fifth_is_held_out(number: int, seed: int) -> None:
    train, evaluations = split(TASKS["rte"], {"dev": examples(range(number))}, seed)
    assert len(evaluations["dev"]) == number // 5
    assert len(train) == number - number // 5


@given(st.integers(10, 60), st.integers(0, 99))
def test_languages_of_a_parallel_task_hold_out_the_same(number: int, seed: int) -> None:
    pool = {code: examples(range(number), code) for code in ("de", "en", "sw")}
    train, evaluations = split(TASKS["xnli"], pool, seed)
    assert all(e.text.startswith("en") for e in train if isinstance(e, TextExample))
    held_out = {code: [e.id for e in part] for code, part in evaluations.items()}
    assert list(held_out) == ["de", "en", "sw"]
    assert held_out["de"] == held_out["en"] == held_out["sw"]
    assert not {e.id for e in train} & set(held_out["de"])


def test_other_languages_are_scored_whole_where_they_are_no_translations() -> None:
    pool = {code: examples(range(20), code) for code in ("en", "sw")}
    train, evaluations = split(TASKS["pan-x"], pool, 0)
    assert (len(train), len(evaluations["en"]), len(evaluations["sw"])) == (16, 4, 20)


def test_without_its_language_a_task_is_trained_on_the_first() -> None:
    train, evaluations = split(TASKS["xnli"], {"de": examples(range(10), "de")}, 0)
    assert (len(train), len(evaluations["de"])) == (8, 2)


@given(st.integers(2, 200))
def test_a_tenth_of_the_training_part_is_kept_for_tuning(number: int) -> None:
    train, dev = examples(range(number)), examples(range(5), "scored ")
    data = TaskData(TASKS["rte"], train, {"dev": dev}, ("x", "y"), True, ())
    tuning = for_tuning(data)
    held_out = tuning.evaluations["tuning"]
    assert list(tuning.evaluations) == ["tuning"]
    assert len(held_out) == max(1, number // 10)
    assert {e.id for e in (*tuning.train, *held_out)} == {e.id for e in train}
    assert len(tuning.train) + len(held_out) == number
    assert for_tuning(data) == tuning


@given(sizes=st.lists(st.integers(1, 300), min_size=1, max_size=12))
def test_a_tenth_is_held_out_however_few_first_texts_there_are(sizes: list[int]) -> None:
    texts = [number for number, size in enumerate(sizes) for _ in range(size)]
    if len(texts) < 20:
        return
    data = TaskData(TASKS["rte"], examples(texts), {}, None, True, ())
    tuning = for_tuning(data)
    held_out = tuning.evaluations["tuning"]
    assert 1 <= len(held_out) <= 0.2 * len(texts)
    assert len(tuning.train) + len(held_out) == len(texts)


def test_first_texts_stay_on_one_side_where_a_tenth_can_be_cut_like_this() -> None:
    texts = [0] * 950 + [1] * 30 + [2] * 20
    data = TaskData(TASKS["rte"], examples(texts), {}, None, True, ())
    held_out = for_tuning(data).evaluations["tuning"]
    assert len({e.text for e in held_out if isinstance(e, TextExample)}) in {1, 2}
    assert len(held_out) in {20, 30, 50}


def test_a_development_part_beside_the_scored_one_is_for_tuning() -> None:
    dev = examples(range(3), "dev ")
    data = TaskData(
        TASKS["rte"], examples(range(9)), {"test": examples(range(2))}, None, True, (), tuning=dev
    )
    assert for_tuning(data).evaluations == {"tuning": dev}
    assert for_tuning(data).train == data.train
