from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kdnas.errors import TeacherError
from kdnas.models.opening import load_model, load_tokenizer, prepare_cut_model, prepare_model
from kdnas.models.sequence.saved import SequenceHandle
from kdnas.models.teacher import TeacherHandle, prepare_teacher
from kdnas.testing.tiny_sequence import make_tiny_sequence
from kdnas.testing.tiny_teacher import make_tiny_teacher


def test_config_json_says_which_kind_it_is(tmp_path: Path) -> None:
    teacher = prepare_model(str(make_tiny_teacher(tmp_path / "teacher")))
    assert isinstance(teacher, TeacherHandle)
    assert teacher == prepare_teacher(str(tmp_path / "teacher"))
    assert prepare_cut_model(str(tmp_path / "teacher"), 1).shape.layers == 1
    made = make_tiny_sequence(tmp_path / "student", layers=1)
    student = prepare_model(str(tmp_path / "student"))
    assert isinstance(student, SequenceHandle)
    assert student.config == made.config
    assert (student.shape.layers, student.longest_sequence) == (1, 64)
    assert len(student.fingerprint) == 16
    loaded = load_model(student)
    assert not any(p.requires_grad for p in loaded.parameters())
    ids = torch.tensor([[2, 20, 3]])
    saved, own = loaded.state_dict(), made.state_dict()
    assert saved.keys() == own.keys()
    assert all(torch.equal(saved[name], own[name]) for name in own)
    with torch.no_grad():  # with a gradient torch takes another LSTM, that rounds otherwise
        torch.testing.assert_close(loaded(ids).logits, made(ids).logits, rtol=0, atol=1e-5)
    for handle in (teacher, student):
        assert load_tokenizer(handle)("a")["input_ids"] == [2, 16, 3]


@pytest.mark.parametrize(("kind", "title"), [("bilstm", "Bi-LSTM"), ("gated-cnn", "gated CNN")])
def test_it_is_no_teacher(kind: str, title: str, tmp_path: Path) -> None:
    make_tiny_sequence(tmp_path, kind)
    with pytest.raises(TeacherError, match=f"is a {title} that was distilled.*predict"):
        prepare_teacher(str(tmp_path))
    with pytest.raises(TeacherError, match=f"is a {title}, whose head .* `keep_layers: 1`"):
        prepare_cut_model(str(tmp_path), 1)


def test_a_folder_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    make_tiny_sequence(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(TeacherError, match="has no tokenizer in"):
        prepare_model(str(tmp_path))


def test_a_tokenizer_that_does_not_load_is_told(tmp_path: Path) -> None:
    handle = prepare_model(str(make_tiny_teacher(tmp_path / "teacher")))
    (tmp_path / "teacher" / "tokenizer.json").write_text("[]")
    with pytest.raises(TeacherError, match=r"the tokenizer of model '.*teacher' does not load \("):
        load_tokenizer(handle)
