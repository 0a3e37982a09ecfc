from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from kdnas.evaluation.finetuning.windows import (
    SpanFeature,
    extract_answers,
    make_features,
    n_best_answers,
)
from kdnas.evaluation.tasks.examples import SpanExample
from kdnas.testing.tiny_tokenizer import make_tiny_tokenizer

WORDS = ("who", "what", "cat", "dog", "bird", "sat", "on", "mat", "the", "a", "in", "1999")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return AutoTokenizer.from_pretrained(make_tiny_tokenizer(tmp_path_factory.mktemp("t"), WORDS))


def example(context: str, *answers: str, id_: str = "q", question: str = "who sat?") -> SpanExample:
    starts = tuple(context.index(answer) for answer in answers)
    return SpanExample(id_, question, context, answers, starts, not answers)


def perfect_logits(features: list[SpanFeature]) -> tuple[np.ndarray, np.ndarray]:
    """Logits of a model that knows: 9 at the answer, 5 at the null token where it is not."""
    length = max(len(feature.offsets) for feature in features)
    starts, ends = np.zeros((2, len(features), length))
    for row, feature in enumerate(features):
        height = 5.0 if feature.start == feature.null else 9.0
        starts[row, feature.start] = ends[row, feature.end] = height
    return starts, ends


def test_a_short_context_is_one_window(tokenizer: Any) -> None:
    [feature] = make_features([example("The Cat, sat on a mat.", "Cat, sat")], tokenizer, 32, 8)
    tokens = tokenizer.convert_ids_to_tokens(feature.inputs["input_ids"])
    assert tokens[:5] == ["[CLS]", "who", "sat", "?", "[SEP]"]
    assert tokens[feature.start : feature.end + 1] == ["cat", ",", "sat"]
    assert feature.null == 0
    assert all(offset is None for offset in feature.offsets[:5])
    assert feature.offsets[-1] is None
    assert len(feature.inputs["input_ids"]) == len(feature.inputs["attention_mask"])


def test_a_long_context_is_cut_into_windows_that_overlap(tokenizer: Any) -> None:
    context = "cat " * 30 + "1999 " + "dog " * 30
    features = make_features([example(context, "1999")], tokenizer, 24, 4)
    assert len(features) > 3
    covered = [offset for f in features for offset in f.offsets if offset]
    words_begin = {match.start() for match in re.finditer(r"\S+", context)}
    assert {start for start, _ in covered} == words_begin
    for one, two in pairwise(features):
        shared = set(filter(None, one.offsets)) & set(filter(None, two.offsets))
        assert len(shared) == 4
    holding = [f for f in features if f.start != f.null]
    assert 1 <= len(holding) < len(features)
    answers, denials = extract_answers(
        *perfect_logits(features), features, [example(context, "1999")]
    )
    assert answers == {"q": "1999"}
    assert denials["q"] == 0 - 18


@settings(max_examples=60, deadline=None)
@given(
    words=st.lists(
        st.sampled_from([*WORDS, "zebra", "É", "x-ray", ",", "\u2003", "猫犬"]),
        min_size=1,
        max_size=60,
    ),
    data=st.data(),
    max_length=st.integers(20, 40),
    stride=st.integers(0, 12),
)
def test_every_answer_comes_back_from_perfect_logits(
    tokenizer: Any, words: list[str], data: st.DataObject, max_length: int, stride: int
) -> None:
    context = " ".join(words)
    first = data.draw(st.integers(0, len(words) - 1))
    last = min(first + data.draw(st.integers(0, 1)), len(words) - 1)
    start = len(" ".join(words[:first])) + (1 if first else 0)
    answer = " ".join(words[first : last + 1])
    asked = SpanExample("q", "who?", context, (answer,), (start,), False)
    features = make_features([asked], tokenizer, max_length, stride)
    assert all(len(f.offsets) <= max_length for f in features)
    inside = [f for f in features if f.start != f.null]
    for feature in inside:
        begin, end = feature.offsets[feature.start], feature.offsets[feature.end]
        assert begin is not None
        assert end is not None
        assert context[begin[0] : end[1]].split() == answer.split()
    if inside:
        found, _ = extract_answers(*perfect_logits(features), features, [asked])
        assert found["q"].split() == answer.split()


def test_no_span_crosses_into_the_question_or_runs_backwards(tokenizer: Any) -> None:
    asked = example("cat dog bird", "dog")
    features = make_features([asked], tokenizer, 32, 8)
    ids = tokenizer.convert_ids_to_tokens(features[0].inputs["input_ids"])
    starts, ends = np.zeros((1, len(ids))), np.zeros((1, len(ids)))
    starts[0, ids.index("who")] = 50  # in the question
    starts[0, ids.index("bird")] = 5
    ends[0, ids.index("cat")] = 4  # before the best start
    ends[0, len(ids) - 1] = 60  # the separator at the end
    answers, _ = extract_answers(starts, ends, features, [asked])
    assert answers["q"] == "bird"


def test_spans_are_no_longer_than_allowed(tokenizer: Any) -> None:
    asked = example("cat dog bird mat sat", "cat")
    features = make_features([asked], tokenizer, 32, 8)
    ids = tokenizer.convert_ids_to_tokens(features[0].inputs["input_ids"])
    starts, ends = np.zeros((1, len(ids))), np.zeros((1, len(ids)))
    starts[0, ids.index("cat")], ends[0, len(ids) - 2] = 9, 8
    assert extract_answers(starts, ends, features, [asked])[0]["q"] == "cat dog bird mat sat"
    short, _ = extract_answers(starts, ends, features, [asked], max_answer_tokens=2)
    assert short["q"] in ("cat", "cat dog")


def test_the_best_spans_are_those_of_all_that_there_are(tokenizer: Any) -> None:
    asked = example("cat dog bird mat sat on the mat", "cat")
    features = make_features([asked], tokenizer, 32, 8)
    offsets = features[0].offsets
    draw = np.random.default_rng(3)
    starts, ends = draw.normal(size=(2, 1, len(offsets)))
    every = sorted(
        (
            (starts[0, s] + ends[0, e], asked.context[offsets[s][0] : offsets[e][1]])  # type: ignore[index]
            for s in range(len(offsets))
            for e in range(s, min(s + 3, len(offsets)))
            if offsets[s] and offsets[e]
        ),
        reverse=True,
    )
    found = n_best_answers(starts, ends, features, [asked], 7, max_answer_tokens=3)["q"]
    assert [(c.score, c.text) for c in found] == every[:7]


def test_a_span_in_two_windows_counts_once_with_its_better_score(tokenizer: Any) -> None:
    context = "cat dog " * 12
    asked = example(context, "cat")
    features = make_features([asked], tokenizer, 24, 6)
    starts, ends = np.zeros((2, len(features), 24))
    shared = next(o for o in features[0].offsets[::-1] if o)
    for row, height in ((0, 3.0), (1, 5.0)):
        starts[row, list(features[row].offsets).index(shared)] = height
        ends[row, list(features[row].offsets).index(shared)] = height
    best = n_best_answers(starts, ends, features, [asked], 40)["q"]
    assert (best[0].start, best[0].end, best[0].score) == (*shared, 10.0)
    assert len({(c.start, c.end) for c in best}) == len(best)


def test_the_null_score_is_the_lowest_of_the_windows(tokenizer: Any) -> None:
    asked = example("cat dog " * 24, "cat")
    features = make_features([asked], tokenizer, 24, 6)
    assert len(features) > 2
    starts, ends = np.zeros((2, len(features), 24))
    starts[:, 0] = 7
    starts[1, 0] = 2
    assert extract_answers(starts, ends, features, [asked])[1]["q"] == 2


def test_several_questions_keep_their_order_and_padding_is_ignored(tokenizer: Any) -> None:
    asked = [
        example("cat sat on the mat " * 5, "mat", id_="long"),
        example("dog", "dog", id_="short"),
        example("bird in a", id_="none"),
    ]
    features = make_features(asked, tokenizer, 24, 4)
    starts, ends = perfect_logits(features)
    short = next(row for row, f in enumerate(features) if f.example == 1)
    starts[short, len(features[short].offsets) :] = 99
    ends[short, len(features[short].offsets) :] = 99
    answers, denials = extract_answers(starts, ends, features, asked)
    assert list(answers) == ["long", "short", "none"]
    assert (answers["long"], answers["short"]) == ("mat", "dog")
    assert denials["short"] < 0 < denials["none"]


def test_an_answer_that_is_not_in_the_context_is_not_trained_on(tokenizer: Any) -> None:
    asked = SpanExample("q", "who?", "cat dog", ("bird", "dog"), (-1, 4), False)
    [feature] = make_features([asked], tokenizer, 24, 4)
    assert feature.offsets[feature.start] == (4, 7)
    nowhere = SpanExample("q", "who?", "cat dog", ("bird",), (-1,), False)
    [feature] = make_features([nowhere], tokenizer, 24, 4)
    assert feature.start == feature.end == feature.null


def test_an_answer_within_a_token_takes_the_token(tokenizer: Any) -> None:
    [feature] = make_features([example("in 1999", "99")], tokenizer, 24, 4)
    assert feature.offsets[feature.start] == (3, 7)


def test_an_endless_question_leaves_room_for_the_context(tokenizer: Any) -> None:
    asked = example("cat sat", "cat", question="what " * 200)
    features = make_features([asked], tokenizer, 24, 8)
    assert len(features) == 1
    assert features[0].offsets[features[0].start] == (0, 3)


def test_a_context_without_text_has_no_answer(tokenizer: Any) -> None:
    asked = [example("  ", id_="empty"), example("cat", "cat", id_="cat")]
    features = make_features(asked, tokenizer, 24, 8)
    answers, denials = extract_answers(*perfect_logits(features), features, asked)
    assert answers == {"empty": "", "cat": "cat"}
    assert denials["empty"] == np.inf


def test_what_cannot_be_done_is_refused(tokenizer: Any) -> None:
    asked = [example("cat", "cat")]
    with pytest.raises(ValueError, match="max_length 6 and stride 2 leave no room"):
        make_features(asked, tokenizer, 6, 2)
    with pytest.raises(ValueError, match="stride -1"):
        make_features(asked, tokenizer, 24, -1)
    features = make_features(asked, tokenizer, 24, 2)
    with pytest.raises(ValueError, match="0 and 0 rows of logits for 1 features"):
        extract_answers([], [], features, asked)
    broken = np.full((1, 24), np.nan)
    with pytest.raises(ValueError, match="not finite"):
        extract_answers(broken, broken, features, asked)


def test_blanks_that_a_tokenizer_counts_in_are_no_part_of_an_answer(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"<s>": 0, "</s>": 1, "<unk>": 2, "▁who": 3, "▁cat": 4, "▁dog": 5}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 1)],
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, cls_token="<s>", unk_token="<unk>")
    asked = example("cat dog", "dog", question="who")
    [feature] = make_features([asked], tokenizer, 16, 2)
    assert feature.offsets[feature.start] == (4, 7)
    answers, _ = extract_answers(*perfect_logits([feature]), [feature], [asked])
    assert answers["q"] == "dog"
