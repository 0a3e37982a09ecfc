"""``compile: true``: the same losses through ``torch.compile``."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch._dynamo.utils import counters

from kdnas.distill.checkpoint import Checkpoints
from kdnas.distill.full import Distilled, FullDistillation, load_distilled
from kdnas.distill.numerics import check_compiler
from kdnas.errors import SpecError
from kdnas.testing.tiny_lab import TinyLab

STUDENT = "1,2,24,48,gelu"


def distil(lab: TinyLab, folder: Path, compiled: bool) -> Distilled:
    spec = lab.distillation(STUDENT, steps=40, batch_size=9, checkpoint_every=15, compile=compiled)
    place = Checkpoints(str(folder / f"compiled-{compiled}"))
    FullDistillation(spec, lab.teacher, lab.corpus, lab.store, place, "cpu", "float32").run()
    found = load_distilled(spec, lab.teacher, place)
    assert found is not None
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # torch's own
def test_a_compiled_student_learns_the_same(lab: TinyLab, tmp_path: Path) -> None:
    """Fused kernels round otherwise: 1e-5 after forty steps. Weights keep their names."""
    try:
        check_compiler()
    except SpecError as error:
        pytest.skip(str(error))
    counters.clear()
    eager, compiled = distil(lab, tmp_path, False), distil(lab, tmp_path, True)
    losses = [point.loss for point in eager.curve]
    assert [point.loss for point in compiled.curve] == pytest.approx(losses, rel=1e-5)
    assert compiled.best.losses.relative == pytest.approx(eager.best.losses.relative, rel=1e-5)
    assert compiled.student.state_dict().keys() == eager.student.state_dict().keys()
    # Batches of 9 × 8, 16 and 24 tokens, and a last one of three sequences.
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]


def test_a_path_that_torch_cannot_hand_on_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.__file__", "/opt/my work/torch/__init__.py")
    with pytest.raises(SpecError, match="no space, and it is /opt/my work/torch; install"):
        check_compiler()


def test_without_a_compiler_it_is_refused_in_words(
    lab: TinyLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.__file__", "/opt/torch/__init__.py")
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(SpecError, match=r"no no-such-compiler here; install one .*package g\+\+"):
        distil(lab, tmp_path, True)


def test_without_the_header_files_it_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.__file__", "/opt/torch/__init__.py")
    monkeypatch.setenv("CXX", "sh")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    with pytest.raises(SpecError, match=r"Python\.h is not there; .*package python3-dev"):
        check_compiler()
