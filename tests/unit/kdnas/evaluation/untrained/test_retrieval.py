"""Passages found by embeddings, against texts that are embedded one by one."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from kdnas.evaluation.settings import AS_IT_IS
from kdnas.evaluation.tasks.examples import RetrievalExample, TaskData
from kdnas.evaluation.tasks.task import own_task
from kdnas.evaluation.untrained.retrieval import nearest, score_by_retrieval
from kdnas.evaluation.untrained.run import score_untrained
from kdnas.models.teacher import prepare_teacher
from kdnas.testing.tiny_teacher import make_tiny_teacher

WORDS = ("river", "stone", "cloud", "tree", "bird")
THEIRS = {
    "ndcg_at_3": "ndcg@3",
    "ndcg_at_10": "ndcg@10",
    "mrr_at_10": "mrr@10",
    "map_at_100": "map@100",
    "precision_at_3": "precision@3",
    "recall_at_20": "recall@20",
}
"""Our names of metrics → those of sentence-transformers."""
PROMPTS = {"query": "river ", "document": "stone ", "other": "x"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_teacher(tmp_path_factory.mktemp("model"), words=WORDS)


def with_prompts(model: Path, to: Path, prompts: Any, **pooling: Any) -> Path:
    """Copy a model and say what it wants before texts."""
    folder = Path(shutil.copytree(model, to))
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    (folder / "modules.json").write_text(
        json.dumps(
            [
                {"idx": n, "name": str(n), "type": f"sentence_transformers.models.{t}", "path": p}
                for n, (t, p) in enumerate(modules)
            ]
        )
    )
    (folder / "1_Pooling").mkdir()
    config = {"word_embedding_dimension": 48, "pooling_mode_mean_tokens": True, **pooling}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))
    file = folder / "config_sentence_transformers.json"
    file.write_text(json.dumps({"prompts": prompts}))
    return folder


def data(**more: Any) -> TaskData:
    draw = random.Random(0)

    def text() -> str:
        return " ".join(draw.choice(WORDS) for _ in range(draw.randint(2, 9)))

    passages = {f"d{n}": text() for n in range(40)}
    queries = [
        RetrievalExample(f"q{n}", text(), {f"d{draw.randrange(40)}": 1.0, f"d{n}": 2.0})
        for n in range(12)
    ]
    task = own_task("mine", "retrieval", metrics=("ndcg_at_10", "recall_at_20"))
    return TaskData(
        task, (), {"test": queries}, None, True, ("made up",), passages=passages, **more
    )


@pytest.mark.parametrize("prompted", [False, True])
def test_passages_are_ranked_as_texts_embedded_one_by_one(
    prompted: bool, model: Path, tmp_path: Path
) -> None:
    folder = with_prompts(model, tmp_path / "m", PROMPTS) if prompted else model
    encoder = AutoModel.from_pretrained(folder, add_pooling_layer=False).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def embed(text: str) -> Any:
        with torch.inference_mode():
            states = encoder(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        mean = states.mean(0).numpy()
        return mean / np.linalg.norm(mean)

    task = data()
    handle = prepare_teacher(str(folder))
    result = score_untrained(handle, task, AS_IT_IS, device="cpu", threads=1)
    assert result is not None
    query, passage = (PROMPTS["query"], PROMPTS["document"]) if prompted else ("", "")
    vectors = np.stack([embed(passage + text) for text in task.passages.values()])
    names = list(task.passages)
    (examples,) = task.evaluations.values()
    for example, said in zip(examples, result.predictions["test"], strict=True):
        assert isinstance(example, RetrievalExample)
        cosines = vectors @ embed(query + example.query)
        assert isinstance(said.prediction, tuple)
        found = [names.index(name) for name in said.prediction]
        assert len(set(found)) == 20
        assert cosines[found] == pytest.approx(-np.sort(-cosines)[:20], abs=1e-5)
        assert said.gold == tuple(example.grades)
        assert said.passage == task.passages[said.prediction[0]]
    scores = [said.score for said in result.predictions["test"]]
    assert result.main == pytest.approx(np.mean(scores))
    assert set(result.metrics["test"]) == {"ndcg_at_10", "recall_at_20"}
    assert result.main_metric() == ("ndcg_at_10", ("test",))
    assert ("queries begin with" in " ".join(result.notes)) == prompted


@pytest.mark.parametrize(
    "texts", [{}, {"max_seq_length": 6, "do_lower_case": False}, {"do_lower_case": True}]
)
def test_scores_are_those_of_sentence_transformers(
    texts: dict[str, Any], model: Path, tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import (
        InformationRetrievalEvaluator,
    )

    folder = with_prompts(model, tmp_path / "m", {})
    (folder / "sentence_bert_config.json").write_text(json.dumps(texts))
    task = own_task("mine", "retrieval", metrics=tuple(THEIRS))
    whole = data()
    if texts.get("do_lower_case"):  # the tokenizer itself knows no capitals
        loud = {name: text.upper() for name, text in whole.passages.items()}
        whole = replace(whole, passages=loud)
    (examples,) = whole.evaluations.values()
    binary = [  # they know no grades
        RetrievalExample(e.id, e.query, dict.fromkeys(e.grades, 1.0))
        for e in examples
        if isinstance(e, RetrievalExample)
    ]
    ours = score_by_retrieval(
        prepare_teacher(str(folder)),
        replace(whole, task=task, evaluations={"test": binary}),
        AS_IT_IS,
        device="cpu",
    )
    assert ours is not None
    evaluator = InformationRetrievalEvaluator(
        {e.id: e.query for e in binary},
        dict(whole.passages),
        {e.id: set(e.grades) for e in binary},
        ndcg_at_k=[3, 10],
        mrr_at_k=[10],
        map_at_k=[100],
        precision_recall_at_k=[3, 20],
        show_progress_bar=False,
        write_csv=False,
    )
    theirs = evaluator(SentenceTransformer(str(folder), device="cpu"))
    assert isinstance(theirs, dict)
    wanted = {name: theirs[f"cosine_{key}"] for name, key in THEIRS.items()}
    assert ours.metrics["test"] == pytest.approx(wanted, abs=1e-6)


def test_it_can_be_stopped_and_tells_how_far_it_is(model: Path) -> None:
    handle, told = prepare_teacher(str(model)), []
    settings = replace(AS_IT_IS, batch_size=16)
    score_by_retrieval(handle, data(), settings, device="cpu", on_progress=told.append)
    assert [(one.phase, one.done, one.total) for one in told] == [
        ("passages", 16, 40),
        ("passages", 32, 40),
        ("passages", 40, 40),
        ("test", 12, 12),
    ]
    assert score_by_retrieval(handle, data(), settings, should_stop=lambda: True) is None
    calls = iter([False, False, False, True])
    stopping = score_by_retrieval(handle, data(), settings, should_stop=lambda: next(calls))
    assert stopping is None


def test_a_query_does_not_find_itself(model: Path) -> None:
    passages = {"a": "river stone", "b": "bird cloud", "c": "tree"}
    alike = [
        RetrievalExample("a", "river stone", {"b": 1.0}),  # is passage a
        RetrievalExample("b", "river stone", {"b": 1.0}),  # has the id of another
        RetrievalExample("c", "tree", {"c": 1.0}),  # is meant to find itself
    ]
    task = own_task("mine", "retrieval", metrics=("recall_at_3",))
    some = TaskData(task, (), {"test": alike}, None, True, ("made up",), passages=passages)
    result = score_by_retrieval(prepare_teacher(str(model)), some, AS_IT_IS, device="cpu")
    assert result is not None
    found = [set(said.prediction) for said in result.predictions["test"]]  # type: ignore[arg-type]
    assert found == [{"b", "c"}, {"a", "b", "c"}, {"a", "b", "c"}]


def test_of_equally_near_passages_the_first_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    passages = torch.eye(4)[[0, 1, 0, 1, 0]]
    queries = torch.eye(4)[[1, 0, 2]]
    wanted = [[1, 3, 0, 2], [0, 2, 4, 1], [0, 1, 2, 3]]
    assert nearest(queries, passages, 4) == wanted
    monkeypatch.setattr("kdnas.evaluation.untrained.retrieval._COSINES", 5)
    assert nearest(queries, passages, 4) == wanted
    assert [len(one) for one in nearest(queries, passages, 9)] == [5, 5, 5]
