from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoTokenizer

from kdnas.distill.checkpoint import Checkpoints
from kdnas.distill.export import (
    CardFacts,
    export_student,
    is_export_of,
    portable_request,
    refuse_used_folder,
)
from kdnas.distill.full import Distilled, FullDistillation, FullProgress, load_distilled
from kdnas.distill.tensorboard import RunEvents, read_events
from kdnas.errors import OutputError, StoreError
from kdnas.models.lm_head import MaskedLMHead
from kdnas.models.pooling import Pooling, read_pooling
from kdnas.specs.distillation import DistillationSpec
from kdnas.testing.small_disk import small_disk
from kdnas.testing.tiny_lab import TinyLab

STUDENT = "2,4,36,96,gelu"
FACTS = CardFacts("d-1", "c0ffee", 270, "float32", "cpu", "1.25 ms")


@pytest.fixture(scope="module")
def distilled(lab: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> Distilled:
    spec = lab.distillation(STUDENT, checkpoint_every=5)
    checkpoints = Checkpoints(str(tmp_path_factory.mktemp("run")))
    FullDistillation(spec, lab.teacher, lab.corpus, lab.store, checkpoints, "cpu", "float32").run()
    found = load_distilled(spec, lab.teacher, checkpoints)
    assert found is not None
    assert found.finished
    return found


def weights(distilled: Distilled) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in distilled.student.state_dict().items()}


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


@pytest.mark.parametrize("size", [100, 2000])
def test_an_export_on_a_full_disk_leaves_nothing(
    lab: TinyLab, tmp_path: Path, distilled: Distilled, size: int
) -> None:
    sentence = r"could not be written .*full-distill --resume d-1"
    with small_disk(size), pytest.raises(StoreError, match=sentence):
        export_student(distilled, lab.distillation(STUDENT), lab.teacher, FACTS, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_the_exported_folder_is_an_ordinary_model(
    lab: TinyLab, tmp_path: Path, distilled: Distilled
) -> None:
    output = tmp_path / "deep" / "student"
    output.mkdir(parents=True)  # an empty folder will do
    export_student(distilled, lab.distillation(STUDENT), lab.teacher, FACTS, output)
    model, report = AutoModel.from_pretrained(
        output, add_pooling_layer=False, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert equal(model.state_dict(), weights(distilled))
    text = ["balan kosor", "mivek"]
    encoded = AutoTokenizer.from_pretrained(output)(text, return_tensors="pt", padding=True)
    of_teacher = AutoTokenizer.from_pretrained(lab.teacher.folder)
    expected = of_teacher(text, return_tensors="pt", padding=True)
    assert torch.equal(encoded["input_ids"], expected["input_ids"])
    with torch.no_grad():
        assert model(**encoded).last_hidden_state.shape[-1] == 36
    assert {p.name for p in output.iterdir()} >= {
        "README.md",
        "config.json",
        "distillation.json",
        "loss_curve.png",
        "metrics.jsonl",
        "model.safetensors",
        "tensorboard",
        "tokenizer.json",
    }
    assert (output / "loss_curve.png").read_bytes().startswith(b"\x89PNG")
    assert equal(load_file(output / "model.safetensors"), weights(distilled))
    assert list(output.parent.iterdir()) == [output]
    # For fine-tuning it has its family's dropout, and for others on the machine the usual mode.
    ours, theirs = (AutoConfig.from_pretrained(f) for f in (output, lab.teacher.folder))
    assert ours.hidden_dropout_prob == theirs.hidden_dropout_prob > 0
    modes = {path.stat().st_mode for path in output.iterdir() if path.is_file()}
    assert len(modes) == 1


def test_a_student_with_a_masked_lm_head_loads_either_way(
    lab: TinyLab, tmp_path: Path, distilled: Distilled
) -> None:
    head = MaskedLMHead(36, 36, lab.teacher.shape.vocab_size, seed=3)
    with torch.no_grad():
        head.bias += torch.arange(len(head.bias)) / 10
    whole, output = replace(distilled, lm_head=head), tmp_path / "out"
    spec = lab.distillation(STUDENT, "od")
    export_student(whole, spec, lab.teacher, FACTS, output)
    encoder, report = AutoModel.from_pretrained(
        output, add_pooling_layer=False, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert equal(encoder.state_dict(), weights(distilled))
    model, report = AutoModelForMaskedLM.from_pretrained(output, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    encoded = AutoTokenizer.from_pretrained(output)("balan kosor mivek", return_tensors="pt")
    with torch.no_grad():
        states = encoder(**encoded).last_hidden_state[0]
        expected = head(states, encoder.get_input_embeddings().weight)
        assert torch.allclose(model(**encoded).logits[0], expected, atol=1e-5)
    assert "AutoModelForMaskedLM" in (output / "README.md").read_text("utf-8")


def test_the_files_beside_the_model_have_the_facts(
    lab: TinyLab, tmp_path: Path, distilled: Distilled
) -> None:
    spec, output = lab.distillation(STUDENT), tmp_path / "out"
    export_student(distilled, spec, lab.teacher, FACTS, output)
    request = DistillationSpec.read(
        json.loads((output / "distillation.json").read_text()), "distillation.json"
    )
    assert (request.teacher.fingerprint, request.corpus.fingerprint) == (None, None)
    assert (request.architecture, request.training) == (spec.architecture, spec.training)
    run = json.loads((output / "run.json").read_text())
    assert (run["distillation_id"], run["step"]) == ("d-1", distilled.best.step)
    assert run["corpus_fingerprint"] == FACTS.corpus_fingerprint
    assert run["corpus_training_sequences"] == FACTS.corpus_sequences
    assert is_export_of(output, "d-1")
    assert not is_export_of(output, "d-2")
    assert not is_export_of(tmp_path / "nowhere", "d-1")
    lines = [json.loads(t) for t in (output / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "training_loss" in line] == list(range(1, 13))
    assert [line["step"] for line in lines if "held_out_relative" in line] == [0, 5, 10, 12]
    assert all(math.isfinite(v) for line in lines for v in line.values())
    figures = read_events(output / "tensorboard")
    assert {f.tag for f in figures} >= {"training/loss", "held_out/relative"}


def test_metrics_name_the_objective_where_it_changes(
    lab: TinyLab, tmp_path: Path, distilled: Distilled
) -> None:
    spec = lab.distillation(STUDENT, objective={"name": "hs+od", "hs_share": 0.5})
    export_student(distilled, spec, lab.teacher, FACTS, tmp_path / "out")
    lines = [json.loads(t) for t in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert {line["objective"] for line in lines if line["step"] <= 6} == {"hs"}
    assert {line["objective"] for line in lines if line["step"] > 6} == {"od"}


def test_a_request_that_travels_names_nothing_of_this_machine(lab: TinyLab) -> None:
    spec = DistillationSpec.model_validate(
        lab.distillation(
            STUDENT,
            objective={"name": "od", "fit_lm_head": 10, "lm_head": "feed"},
            checkpoints="s3://ours/runs",
            address="10.0.0.1:6379",
        ).to_json()
        | {
            "output": "here/student",
            "name": "mine",
            "student": {"init_from": {"ref": "owner/hs-student", "fingerprint": "beef"}},
        }
    )
    request = portable_request(spec)
    text = json.dumps(request)
    for word in ("feed", "s3:", "6379", "here/student", "mine", "beef", lab.teacher.fingerprint):
        assert word not in text
    again = DistillationSpec.read(request, "distillation.json")
    assert again.student.init_from is not None
    assert again.student.init_from.ref == "owner/hs-student"
    assert again.objective == spec.objective.model_copy(update={"lm_head": None})


def test_a_used_output_folder_is_refused(
    lab: TinyLab, tmp_path: Path, distilled: Distilled
) -> None:
    used = tmp_path / "used"
    used.mkdir()
    refuse_used_folder(used)
    refuse_used_folder(tmp_path / "new")
    (used / "precious.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"used is not empty; empty it and go on"):
        export_student(distilled, lab.distillation(STUDENT), lab.teacher, FACTS, used)
    assert (used / "precious.txt").read_text() == "mine"
    with pytest.raises(OutputError, match="is a file"):
        refuse_used_folder(used / "precious.txt")


def test_a_mount_point_is_no_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written beside it cannot be moved there."""
    monkeypatch.setattr(Path, "is_mount", lambda path: path.name == "volume")
    with pytest.raises(OutputError, match="volume is a mount point; name a new folder in it"):
        refuse_used_folder(tmp_path / "volume")
    refuse_used_folder(tmp_path / "volume" / "student")


def test_an_unmeasured_latency_is_said_to_be_so(
    lab: TinyLab, tmp_path: Path, distilled: Distilled
) -> None:
    facts = replace(FACTS, latency=None)
    export_student(distilled, lab.distillation(STUDENT), lab.teacher, facts, tmp_path / "out")
    assert "| latency | not measured |" in (tmp_path / "out" / "README.md").read_text("utf-8")


def test_a_student_embeds_sentences_as_its_teacher_does(
    lab: TinyLab, tmp_path: Path, distilled: Distilled
) -> None:
    """Without a map where the teacher takes the largest value of each channel."""
    handle, output = lab.with_sentences(tmp_path / "teacher", "max").teacher, tmp_path / "student"
    export_student(distilled, lab.distillation(STUDENT), handle, FACTS, output)
    assert read_pooling(output, "student") == Pooling(("max",), configured=True)
    pooling = json.loads((output / "1_Pooling" / "config.json").read_text())
    assert pooling == {"pooling_mode": "max", "embedding_dimension": 36}
    card = (output / "README.md").read_text()
    assert "SentenceTransformer(" in card
    assert "linear map" not in card
    assert not (output / "2_Dense").exists()


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_student_embeds_sentences_in_its_teachers_space(
    pooling: str, lab: TinyLab, tmp_path: Path, distilled: Distilled
) -> None:
    """By sentence-transformers and by the lines of the card alike."""
    handle, output = lab.with_sentences(tmp_path / "teacher", pooling).teacher, tmp_path / "out"
    projection = torch.randn(36, 48, generator=torch.Generator().manual_seed(0))
    mapped = replace(distilled, projection=projection)
    export_student(mapped, lab.distillation(STUDENT), handle, FACTS, output)
    card = (output / "README.md").read_text("utf-8")
    assert "the teacher's 48 dimensions, not the student's 36" in " ".join(card.split())
    code = card.split("```python\n")[1].split("```")[0]
    known: dict[str, Any] = {}
    before, by_hand = code.split("# the same without sentence-transformers")
    exec(before.replace("path/to/this/folder", str(output)), known)
    vectors = torch.from_numpy(known.pop("vectors"))
    assert vectors.shape == (2, 48)
    exec(by_hand.replace("path/to/this/folder", str(output)), known)
    assert torch.allclose(known["vectors"], vectors, atol=1e-5)
    states = known["states"]
    pooled = states[:, 0] if pooling == "cls" else Pooling()(states, known["mask"].squeeze(-1))
    wanted = torch.nn.functional.normalize(pooled @ projection)
    assert torch.allclose(wanted, vectors, atol=1e-5)


def test_an_undistilled_student_is_exported_without_a_curve(lab: TinyLab, tmp_path: Path) -> None:
    spec = lab.distillation(STUDENT, steps=0)
    checkpoints = Checkpoints(str(tmp_path / "run"))
    told: list[FullProgress] = []
    with RunEvents(tmp_path / "events") as events:

        def tell(progress: FullProgress) -> None:
            told.append(progress)
            events.add(progress)

        FullDistillation(
            spec, lab.teacher, lab.corpus, lab.store, checkpoints, "cpu", "float32"
        ).run(tell)
    start = load_distilled(spec, lab.teacher, checkpoints)
    assert start is not None
    output = tmp_path / "out"
    export_student(start, spec, lab.teacher, FACTS, output, tmp_path / "events")
    model = AutoModel.from_pretrained(output, add_pooling_layer=False)
    assert equal(model.state_dict(), weights(start))
    assert not (output / "loss_curve.png").exists()
    (line,) = [json.loads(text) for text in (output / "metrics.jsonl").read_text().splitlines()]
    assert line["step"] == 0
    assert line["held_out_relative"] == start.best.losses.relative
    tags = {figure.tag for figure in read_events(output / "tensorboard")}
    assert tags == {"held_out/relative", "held_out/output", "held_out/mean"}
    assert [progress.tokens_per_second for progress in told] == [0.0]
    again = DistillationSpec.read(json.loads((output / "distillation.json").read_text()), "again")
    assert again.training.steps == 0
