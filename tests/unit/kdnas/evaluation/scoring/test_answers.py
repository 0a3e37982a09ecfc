from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdnas.evaluation.scoring.answers import (
    apply_threshold,
    bag_f1,
    exact_match,
    normalised,
    score_answer,
    score_spans,
)
from kdnas.evaluation.tasks.examples import SpanExample
from kdnas.evaluation.tasks.registry import TASKS

SQUAD, SQUAD2 = TASKS["squad 1.1"], TASKS["squad 2.0"]
TEXTS = st.text("abt he.,-'\tÄ“1", max_size=12)


def question(id_: str, *answers: str) -> SpanExample:
    context = " ".join(answers) + " context"
    starts = tuple(context.index(answer) for answer in answers)
    return SpanExample(id_, "what?", context, answers, starts, not answers)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("The  Cat.", "cat"),
        ("an apple a day", "apple day"),
        ("theatre", "theatre"),
        ("a.", ""),
        ("the-end", "theend"),
        ("the–end", "–end"),
        ("U.S.A", "usa"),
        ("“Cat”", "“cat”"),
        ("Ångström", "ångström"),
        ("cat\n\t dog ", "cat dog"),
        ("Cat's", "cats"),
        ("", ""),
    ],
)
def test_answers_are_compared_as_squad_does(text: str, same: str) -> None:
    assert normalised(text) == same


@pytest.mark.parametrize(
    ("prediction", "gold", "f1"),
    [
        ("the cat", "cat", 1),
        ("cat dog", "cat", 2 / 3),
        ("cat cat", "cat", 2 / 3),
        ("cat cat dog", "cat cat bird", 2 / 3),
        ("dog", "cat", 0),
        ("", "cat", 0),
        ("the", "", 1),
        ("cat", "a", 0),
    ],
)
def test_f1_is_of_bags_of_words(prediction: str, gold: str, f1: float) -> None:
    assert bag_f1(prediction, gold) == pytest.approx(f1)
    assert bag_f1(gold, prediction) == pytest.approx(f1)


@given(TEXTS, TEXTS)
def test_an_exact_match_is_a_whole_f1(prediction: str, gold: str) -> None:
    assert 0 <= bag_f1(prediction, gold) <= 1
    if exact_match(prediction, gold):
        assert bag_f1(prediction, gold) == 1


def test_the_best_of_several_answers_counts() -> None:
    example = question("1", "10th and 11th centuries", "in the 10th")
    assert score_answer("in 10th", example) == (1, 1)
    assert score_answer("11th centuries", example) == (pytest.approx(2 / 3), 0)


def test_squad_without_impossible_questions() -> None:
    examples = [question("1", "Denver Broncos"), question("2", "1066")]
    scores = score_spans(SQUAD, {"1": "the Denver", "2": "1066."}, examples, None)
    assert scores == {"f1": pytest.approx((2 / 3 + 1) / 2), "exact_match": 0.5}


def test_only_the_empty_answer_is_right_for_an_impossible_question() -> None:
    examples = [question("1", "cat"), question("2"), question("3")]
    scores = score_spans(SQUAD2, {"1": "", "2": "", "3": "dog"}, examples, None)
    assert scores == {
        "f1": pytest.approx(1 / 3),
        "exact_match": pytest.approx(1 / 3),
        "no_answer_accuracy": 0.5,
        "has_answer_f1": 0,
        "has_answer_exact_match": 0,
    }


def test_answers_that_are_nothing_but_articles_count_as_none() -> None:
    example = SpanExample("1", "which?", "the", ("the",), (0,), False)
    assert score_answer("", example) == (1, 1)


def test_the_threshold_empties_answers_and_the_best_one_is_found() -> None:
    examples = [question("1", "cat"), question("2", "dog"), question("3"), question("4")]
    answers = {"1": "cat", "2": "dog", "3": "cow", "4": "owl"}
    denials = {"1": -3.0, "2": 1.0, "3": 2.0, "4": -5.0}
    assert apply_threshold(answers, denials) == {"1": "cat", "2": "", "3": "", "4": "owl"}
    scores = score_spans(SQUAD2, answers, examples, denials)
    assert scores["exact_match"] == 0.5
    # Keeping 4, 1 and 2 is the best: two right answers, one right silence.
    assert scores["best_exact_match"] == 0.75
    assert scores["best_exact_match_threshold"] == 1.0
    assert scores["best_f1"] == 0.75
    at_best = score_spans(SQUAD2, answers, examples, denials, no_answer_threshold=1.0)
    assert at_best["exact_match"] == 0.75


@pytest.mark.parametrize(
    ("text", "language", "same"),
    [
        ("die „Katze“!", "de", "katze"),
        ("El  Niño", "es", "niño"),
        ("¿los gatos?", "es", "gatos"),
        ("những con mèo", "vi", "con mèo"),
        ("القط", "ar", "قط"),
        ("बिल्ली।", "hi", "बिल्ली"),
        ("在1999年，DEC 公司。", "zh", "在 1999 年 dec 公 司"),
        ("the “cat”", "en", "cat"),
    ],
)
def test_mlqa_has_rules_for_each_language(text: str, language: str, same: str) -> None:
    assert normalised(text, language) == same


def test_a_question_that_names_its_language_is_scored_by_its_rules() -> None:
    plain = question("1", "黑豹队的防守")
    assert score_answer("黑豹队", plain) == (0, 0)
    chinese = replace(plain, language="zh")
    assert score_answer("黑豹队", chinese) == (pytest.approx(2 * 3 / 9), 0)
    assert score_answer("黑豹队的防守。", chinese) == (1, 1)
    scores = score_spans(TASKS["mlqa"], {"1": "黑豹队"}, [chinese], None)
    assert scores["f1"] == pytest.approx(2 / 3)


def test_silence_may_be_best_and_equal_scores_stay_together() -> None:
    examples = [question("1"), question("2"), question("3", "cat")]
    answers = dict.fromkeys("123", "cat")
    silent = score_spans(SQUAD2, answers, examples, dict.fromkeys("123", 0.0))
    assert silent["best_f1"] == pytest.approx(2 / 3)
    assert silent["best_f1_threshold"] == -1.0


@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(-3, 3)), min_size=1, max_size=12)
)
def test_no_threshold_is_better_than_the_best(rows: list[tuple[bool, bool, int]]) -> None:
    examples, answers, denials = [], {}, {}
    for number, (has_answer, right, denial) in enumerate(rows):
        examples.append(question(str(number), *(["cat"] if has_answer else [])))
        answers[str(number)] = "cat" if right else "dog"
        denials[str(number)] = float(denial)
    if all(has_answer for has_answer, _, _ in rows):
        return
    best = score_spans(SQUAD2, answers, examples, denials)
    tried = [
        score_spans(SQUAD2, answers, examples, denials, no_answer_threshold=t)["f1"]
        for t in half_way(-4.5, 4)
    ]
    assert best["best_f1"] == pytest.approx(max(tried))


def half_way(start: float, stop: float) -> list[float]:
    """Thresholds between the whole numbers."""
    return [start + n for n in range(int(stop - start) + 1)]


def test_what_cannot_be_scored_is_refused() -> None:
    examples = [question("1", "cat")]
    with pytest.raises(ValueError, match="1 questions have no prediction, such as '1'"):
        score_spans(SQUAD, {}, examples, None)
    with pytest.raises(ValueError, match="1 questions have no no-answer score"):
        score_spans(SQUAD2, {"1": "cat"}, examples, {})
    with pytest.raises(ValueError, match="no question"):
        score_spans(SQUAD, {}, [], None)
    with pytest.raises(ValueError, match="RTE is a task of kind classification"):
        score_spans(TASKS["rte"], {"1": ""}, examples, None)
