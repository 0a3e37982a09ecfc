"""A head fitted to a teacher without one, and what learns from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kdnas.architecture import Architecture
from kdnas.corpus.tokenized import TokenizedCorpus, build_corpus
from kdnas.distill.checkpoint import Checkpoints
from kdnas.distill.fit_lm_head import FittedHead, fit_lm_head, log_frequencies
from kdnas.distill.full import FullDistillation, load_distilled
from kdnas.distill.group import MiniKD
from kdnas.errors import TeacherError
from kdnas.models.lm_head import MaskedLMHead, has_lm_head, load_teacher_lm_head, save_masked_lm
from kdnas.models.teacher import LM_HEAD_KIND, TeacherHandle, open_teacher, prepare_teacher
from kdnas.records import MiniKDRequest, MiniKDResult
from kdnas.specs.parts import CorpusSpec
from kdnas.store import Store
from kdnas.testing.tiny_lab import MAX_LENGTH, TinyLab, make_tiny_lab

STEPS = 60
STUDENTS = {
    "od": "2,2,24,48,relu",
    "hs+od": "2,2,24,48,relu",
    "distilbert": "2,4,48,96,gelu",
}
WORDS = [f"{a}{b}" for a in ("ba", "ko", "mi", "ru", "te") for b in ("lan", "sor", "vek")]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> TinyLab:
    """One word a sentence, again and again: what is masked can be told from the others."""
    folder = tmp_path_factory.mktemp("lab")
    made = make_tiny_lab(folder)
    texts = [" ".join([word] * n) for word in WORDS for n in range(3, 23)]
    (folder / "repeats.txt").write_text("\n".join(texts) + "\n", "utf-8")
    spec = CorpusSpec(
        source=(str(folder / "repeats.txt"),), max_length=MAX_LENGTH, held_out_fraction=0.15
    )
    return replace(made, corpus=build_corpus(spec, made.teacher.folder, made.store))


def fit(lab: TinyLab, **options: Any) -> FittedHead:
    settings: dict[str, Any] = {"dtype": "float32", "device": "cpu", "steps": STEPS} | options
    return fit_lm_head(lab.teacher, lab.corpus, store=lab.store, **settings)


@pytest.fixture(scope="module")
def fitted(lab: TinyLab) -> FittedHead:
    return fit(lab)


@pytest.fixture(scope="module")
def teacher(lab: TinyLab, fitted: FittedHead) -> TeacherHandle:
    return open_teacher(lab.teacher.fingerprint, lab.store, fitted.fingerprint)


def test_the_head_learns_to_guess_masked_tokens(fitted: FittedHead) -> None:
    assert fitted.before.loss == pytest.approx(np.log(len(WORDS)), rel=0.2)
    assert fitted.after.loss < 0.7 * fitted.before.loss
    assert fitted.after.accuracy > max(0.4, 2 * fitted.before.accuracy)


def test_the_teacher_has_it_from_then_on(lab: TinyLab, teacher: TeacherHandle) -> None:
    assert not has_lm_head(lab.teacher)
    assert has_lm_head(teacher)
    head = load_teacher_lm_head(teacher)
    assert head.decoder is None
    assert not any(p.requires_grad for p in head.parameters())


def test_a_second_call_finds_it(lab: TinyLab, fitted: FittedHead) -> None:
    told: list[tuple[int, int]] = []
    again = fit(lab, on_progress=lambda done, total: told.append((done, total)))
    assert again == replace(fitted, seconds=0.0)
    assert told == []


def test_other_settings_make_another_head_and_the_same_ones_the_same(
    lab: TinyLab, tmp_path: Path
) -> None:
    one = fit(lab, steps=2)
    told: list[tuple[int, int]] = []
    elsewhere = replace(lab, store=Store(str(tmp_path / "store"), tmp_path / "cache"))
    same = fit(elsewhere, steps=2, on_progress=lambda done, total: told.append((done, total)))
    assert same.fingerprint == one.fingerprint
    assert same.after == one.after
    assert told[-1] == (2, 2)
    others = [fit(lab, steps=3), fit(lab, steps=2, seed=1), fit(lab, steps=2, dtype="bfloat16")]
    assert len({one.fingerprint, *(other.fingerprint for other in others)}) == 4


def test_what_stops_it_leaves_nothing_behind(lab: TinyLab, tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"), tmp_path / "cache")

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(replace(lab, store=store), steps=5, on_progress=stop)
    assert not list(tmp_path.rglob("*"))
    assert fit(replace(lab, store=store), steps=5).seconds > 0


def test_the_process_stays_as_it_was(lab: TinyLab) -> None:
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    fit(lab, steps=1, seed=9, threads=2)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_frequencies_are_those_of_the_training_split(lab: TinyLab) -> None:
    corpus: TokenizedCorpus = lab.corpus
    ids = np.concatenate([corpus.tokens(i) for i in corpus.train_indices])
    size = lab.teacher.shape.vocab_size
    counts = np.array([1 + (ids == token).sum() for token in range(size)])
    shares = log_frequencies(corpus, size).double().exp().numpy()
    np.testing.assert_allclose(shares, counts / counts.sum(), rtol=1e-5)


def train(
    lab: TinyLab, teacher: TeacherHandle, objective: Any, init: str = "teacher", **proxy: Any
) -> MiniKDResult:
    context = lab.context(init=init, objective=objective, learning_rate=5e-3, fraction=1.0, **proxy)
    architecture = Architecture.parse(STUDENTS[context.objective["name"]])
    engine = MiniKD(context, teacher, lab.corpus, lab.store, "cpu")
    items = list(engine.train([MiniKDRequest("one", architecture)]))
    result = items[-1]
    assert isinstance(result, MiniKDResult)
    return result


@pytest.mark.parametrize(
    ("objective", "steps"),
    [
        ({"name": "od"}, 80),
        ({"name": "od", "temperature": 2, "positions": "all"}, 40),
        ({"name": "hs+od", "hs_share": 0.2}, 160),
        ({"name": "distilbert"}, 60),
    ],
    ids=str,
)
def test_students_learn_from_it(
    lab: TinyLab, teacher: TeacherHandle, objective: dict[str, Any], steps: int
) -> None:
    few, many = (train(lab, teacher, objective, steps=n) for n in (4, steps))
    assert few.losses is not None
    assert many.losses is not None
    assert many.losses.relative < 0.8 * few.losses.relative
    assert many.losses.output < 0.8 * few.losses.output
    assert many.losses.mean < few.losses.mean
    assert many.losses.relative < 1
    if objective["name"] != "hs+od":  # whose stages have losses of their own
        assert many.curve[-1].loss < many.curve[0].loss


@pytest.mark.parametrize("init", ["teacher", "warm"])
def test_the_students_head_starts_from_it(lab: TinyLab, teacher: TeacherHandle, init: str) -> None:
    begun, unbegun = (train(lab, teacher, "od", start, steps=1) for start in (init, "random"))
    assert begun.loss_start is not None
    assert unbegun.loss_start is not None
    assert begun.loss_start < unbegun.loss_start
    again = train(lab, teacher, "od", init, steps=1)
    assert again.loss_start == begun.loss_start


def test_a_teacher_without_a_head_cannot_teach_them(lab: TinyLab) -> None:
    with pytest.raises(TeacherError, match=r"`objective\.fit_lm_head`"):
        train(lab, lab.teacher, "od", steps=2)


def test_no_steps_of_two_stages_give_the_start_read_in_the_last(
    lab: TinyLab, teacher: TeacherHandle, tmp_path: Path
) -> None:
    starts = {}
    for objective in ("hs+od", "od"):
        spec = lab.distillation("2,2,24,48,relu", objective, steps=0)
        place = Checkpoints(str(tmp_path / objective))
        run = FullDistillation(spec, teacher, lab.corpus, lab.store, place, "cpu", "float32")
        assert run.run() == 0
        found = load_distilled(spec, teacher, place)
        assert found is not None
        assert found.lm_head is not None
        starts[objective] = found
    two, one = starts.values()
    assert two.best == one.best
    own, other = two.student.state_dict(), one.student.state_dict()
    assert all(torch.equal(own[name], other[name]) for name in own)


def test_a_full_distillation_gives_a_masked_lm_that_others_go_on_from(
    lab: TinyLab, teacher: TeacherHandle, tmp_path: Path
) -> None:
    spec = lab.distillation("2,2,24,48,relu", {"name": "od"}, steps=8)
    checkpoints = Checkpoints(str(tmp_path / "checkpoints"))
    run = FullDistillation(spec, teacher, lab.corpus, lab.store, checkpoints, "cpu", "float32")
    assert run.run() == 8
    distilled = load_distilled(spec, teacher, checkpoints)
    assert distilled is not None
    assert distilled.lm_head is not None
    assert distilled.lm_head.activation == "relu"  # BERT's head has the encoder's
    save_masked_lm(distilled.student, distilled.lm_head, tmp_path / "student")
    for file in lab.teacher.folder.glob("*token*"):
        (tmp_path / "student" / file.name).write_bytes(file.read_bytes())
    origin = prepare_teacher(str(tmp_path / "student"))
    assert has_lm_head(origin)
    onward = FullDistillation(
        spec,
        teacher,
        lab.corpus,
        lab.store,
        Checkpoints(str(tmp_path / "more")),
        "cpu",
        "float32",
        origin,
    )
    plan = onward._stages[0]
    trainer = onward._setup.trainer(
        onward._setup.student(spec.arch, plan, spec.training), spec.arch, plan, spec.training
    )
    own = trainer.head.student_lm_head
    assert isinstance(own, MaskedLMHead)
    for name, value in distilled.lm_head.state_dict().items():
        assert torch.equal(own.state_dict()[name], value)
    trainer.close()


def test_the_store_knows_how_a_head_was_fitted(lab: TinyLab, fitted: FittedHead) -> None:
    about = lab.store.manifest(LM_HEAD_KIND, fitted.fingerprint).metadata
    assert about["teacher"] == lab.teacher.fingerprint
    assert about["corpus"] == lab.corpus.fingerprint
    assert about["steps"] == STEPS
