"""The map of a student's last layer to its teacher's: fitted, kept with the best student."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from kdnas.corpus.batches import pad_batch
from kdnas.corpus.tokenized import TokenizedCorpus
from kdnas.distill.calibration import calibration_states
from kdnas.distill.checkpoint import Checkpoints
from kdnas.distill.full import Distilled, FullDistillation, load_distilled
from kdnas.distill.sentence_map import SentenceMaps
from kdnas.models.families import family_of
from kdnas.models.pooling import Pooling
from kdnas.models.sentence import write_student_modules
from kdnas.models.start.linear import least_squares
from kdnas.models.taps import TapPoints, read_token_states
from kdnas.models.teacher import load_teacher_model
from kdnas.specs.distillation import DistillationSpec
from kdnas.specs.parts import StudentSpec
from kdnas.store import Store
from kdnas.testing.tiny_lab import TinyLab

STUDENT = "2,4,36,96,gelu"


@pytest.fixture(scope="module")
def sentences(lab: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> TinyLab:
    return lab.with_sentences(tmp_path_factory.mktemp("sentences") / "teacher")


def distil(
    lab: TinyLab, spec: DistillationSpec, place: Path, stop_after: int | None = None
) -> Distilled:
    asked, checkpoints = count(1), Checkpoints(str(place))
    run = FullDistillation(spec, lab.teacher, lab.corpus, lab.store, checkpoints, "cpu", "float32")
    run.run(should_stop=lambda: next(asked) == stop_after)
    found = load_distilled(spec, lab.teacher, checkpoints)
    assert found is not None
    return found


def assert_fitted(lab: TinyLab, distilled: Distilled, own: torch.Tensor | None = None) -> None:
    """As least squares over sequences and tokens in float64, by another way than ours.

    A random teacher's states have next to no extent in some directions, where weights are not
    known well; what they lead to is.
    """
    model = load_teacher_model(lab.teacher)
    own = torch.eye(48) if own is None else own
    tokens = StudentSpec().calibration_tokens
    states = calibration_states(lab.teacher, model, lab.corpus, tokens, lab.store, "cpu")
    points = TapPoints(hidden=frozenset({2}))
    batches = states.batches(lab.teacher.config.pad_token_id or 0, "cpu")
    read = read_token_states(distilled.student, family_of("bert"), points, batches).hidden[2]
    # All training sequences are fewer than are wanted.
    sequences = [
        torch.from_numpy(lab.corpus.tokens(i).astype(int)) for i in lab.corpus.train_indices
    ]

    def means(encoder: torch.nn.Module) -> torch.Tensor:
        with torch.no_grad():
            found = [encoder(input_ids=ids[None]).last_hidden_state[0].mean(0) for ids in sequences]
        return torch.stack(found).double()

    count, embedded = len(sequences), means(distilled.student)
    share = (0.01 * count / len(read)) ** 0.5
    rows = torch.cat([embedded, share * read.double()])
    there = torch.cat([means(model), share * states.output(4).double()]) @ own.double()
    ridge = (1e-6 * rows.square().sum(0).mean()).sqrt() * torch.eye(36).double()
    lifted = torch.cat([rows, ridge]), torch.cat([there, torch.zeros(36, there.shape[1]).double()])
    wanted = embedded @ torch.linalg.lstsq(*lifted).solution
    assert distilled.projection is not None
    assert distilled.projection.shape == (36, there.shape[1])
    found = embedded @ distilled.projection.double()
    assert float((found - wanted).norm() / wanted.norm()) < 5e-3


OBJECTIVES: list[tuple[Any, dict[str, Any]]] = [
    ("hs", {}),
    ({"name": "hs", "mapping": {2: [1, 4]}}, {}),
    ({"name": "minilmv2", "relation_heads": 4}, {}),
    ({"name": "minilmv2", "relation_heads": 4, "teacher_layer": 2}, {}),
    ("hs", {"steps": 0}),
]


@pytest.mark.parametrize(("objective", "training"), OBJECTIVES)
def test_it_is_that_of_the_best_student_by_least_squares(
    objective: Any, training: dict[str, Any], sentences: TinyLab, tmp_path: Path
) -> None:
    """Whatever was learned, and of a student that learned nothing."""
    spec = sentences.distillation(STUDENT, objective, **training)
    assert_fitted(sentences, distil(sentences, spec, tmp_path))


@pytest.mark.parametrize("init", ["teacher", "warm"])
def test_it_leads_to_the_whole_teacher_where_a_lower_layer_teaches(
    init: str, sentences: TinyLab, tmp_path: Path
) -> None:
    """Nothing of the teacher was read before its upper layers were first left out."""
    store = Store(str(tmp_path / "store"), tmp_path / "cache")
    fresh = replace(sentences, store=store)
    objective = {"name": "minilmv2", "relation_heads": 4, "teacher_layer": 2}
    spec = fresh.distillation(STUDENT, objective)
    spec = spec.model_copy(update={"student": spec.student.model_copy(update={"init": init})})
    assert_fitted(fresh, distil(fresh, spec, tmp_path / "run"))


def test_it_leads_to_what_is_behind_the_teachers_own_map(lab: TinyLab, tmp_path: Path) -> None:
    own = torch.randn(48, 8, generator=torch.Generator().manual_seed(0))
    student = lab.with_sentences(tmp_path / "plain").teacher.sentences
    assert student is not None
    (tmp_path / "mapped").mkdir()
    assert write_student_modules(student, 48, tmp_path / "mapped", own) is not None
    mapped = replace(lab, teacher=replace(lab.teacher, sentences=tmp_path / "mapped"))
    distilled = distil(mapped, mapped.distillation(STUDENT, steps=0), tmp_path / "run")
    assert_fitted(mapped, distilled, own)


@pytest.mark.parametrize("pooling", ["cls", "lasttoken", "weightedmean"])
def test_it_brings_embeddings_of_any_linear_pooling_closer(
    pooling: str, lab: TinyLab, tmp_path: Path
) -> None:
    """Closer to the teacher's than the map of tokens alone, on sequences that it was fitted to."""
    mapped = lab.with_sentences(tmp_path / "teacher", pooling)
    distilled = distil(mapped, mapped.distillation(STUDENT, steps=0), tmp_path / "run")
    model, pool = load_teacher_model(lab.teacher), Pooling((pooling,))
    padded = pad_batch(lab.corpus, lab.corpus.train_indices)
    ids, mask = torch.from_numpy(padded.input_ids), torch.from_numpy(padded.attention_mask)
    with torch.no_grad():
        theirs, own = (
            pool(encoder(input_ids=ids, attention_mask=mask).last_hidden_state, mask)
            for encoder in (model, distilled.student)
        )
    assert distilled.projection is not None
    tokens = StudentSpec().calibration_tokens
    states = calibration_states(lab.teacher, model, lab.corpus, tokens, lab.store, "cpu")
    batches = states.batches(lab.teacher.config.pad_token_id or 0, "cpu")
    points = TapPoints(hidden=frozenset({2}))
    read = read_token_states(distilled.student, family_of("bert"), points, batches).hidden[2]
    of_tokens = least_squares(read, states.output(4))
    missed = [float((own @ w - theirs).square().mean()) for w in (distilled.projection, of_tokens)]
    assert missed[0] < missed[1]


def test_it_stays_with_the_best_student_when_a_worse_one_follows(
    sentences: TinyLab, tmp_path: Path
) -> None:
    settings = {"learning_rate": 0.1, "warmup_fraction": 0.9, "checkpoint_every": 1}
    distilled = distil(sentences, sentences.distillation(STUDENT, **settings), tmp_path)
    assert distilled.best.step < distilled.steps
    assert_fitted(sentences, distilled)


def test_resuming_changes_no_bit_of_it(sentences: TinyLab, tmp_path: Path) -> None:
    spec = sentences.distillation(STUDENT, checkpoint_every=5, dropout=0.1)
    whole = distil(sentences, spec, tmp_path / "whole")
    assert distil(sentences, spec, tmp_path / "pieces", 7).steps == 7
    pieces = distil(sentences, spec, tmp_path / "pieces")
    assert whole.projection is not None
    assert pieces.projection is not None
    assert torch.equal(pieces.projection, whole.projection)


def test_it_is_fitted_once_at_the_end(
    sentences: TinyLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the held-out text is read; a run that was stopped has none yet."""
    fitted, fit = [], SentenceMaps.fit

    def counted(*arguments: Any) -> torch.Tensor:
        fitted.append(1)
        return fit(*arguments)

    monkeypatch.setattr(SentenceMaps, "fit", counted)
    spec = sentences.distillation(STUDENT, checkpoint_every=1)
    stopped = distil(sentences, spec, tmp_path / "run", 7)
    assert (len(stopped.held_out), stopped.projection, fitted) == (8, None, [])
    whole = distil(sentences, spec, tmp_path / "run")
    assert whole.finished
    assert len(fitted) == 1
    assert_fitted(sentences, whole)


def test_there_is_none_where_it_would_be_of_no_use(
    lab: TinyLab, sentences: TinyLab, tmp_path: Path
) -> None:
    spec = lab.distillation(STUDENT, steps=0)
    assert distil(lab, spec, tmp_path / "plain").projection is None
    largest = lab.with_sentences(tmp_path / "teacher", "max")
    assert distil(largest, spec, tmp_path / "largest").projection is None


def test_there_is_none_of_too_little_text(sentences: TinyLab, tmp_path: Path) -> None:
    """A start that needs none of it is trained all the same."""
    few = TokenizedCorpus.open(sentences.corpus.folder)
    few.train_indices = few.train_indices[:4]
    objective = {"name": "minilmv2", "relation_heads": 4}
    spec = sentences.distillation(STUDENT, objective, steps=1, batch_size=2)
    spec = spec.model_copy(update={"student": spec.student.model_copy(update={"init": "warm"})})
    assert distil(replace(sentences, corpus=few), spec, tmp_path).projection is None
