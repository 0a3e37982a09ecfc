from __future__ import annotations

from pathlib import Path

import pytest

from kdnas.testing.commands import Finished, Program
from kdnas.testing.stub_hub import TOKEN, running_stub_hub
from kdnas.testing.tiny_teacher import make_tiny_teacher


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("export")
    make_tiny_teacher(folder / "student", layers=1, hidden=24, heads=2)
    return Program(folder)


def online(url: str) -> dict[str, str]:
    return {"HF_ENDPOINT": url, "HF_TOKEN": TOKEN, "HF_HUB_OFFLINE": "0"}


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


@pytest.mark.slow
def test_a_student_becomes_onnx_and_goes_to_the_hub(program: Program) -> None:
    with running_stub_hub() as hub:
        done = program.run(
            *("export", "student", "--format", "onnx", "--int8", "--sequence-length", "8"),
            *("--push-to-hub", "team/student-onnx", "--private", "--json"),
            **online(hub.url),
        )
        assert done.code == 0, done.err
        written = files(program.folder / "student-onnx")
        assert hub.files == {"team/student-onnx": written}
        assert hub.private == {"team/student-onnx": True}
    assert {"model.onnx", "model.int8.onnx", "config.json", "tokenizer.json"} <= set(written)
    assert done.json["hub"] == f"{hub.url}/team/student-onnx"
    assert done.json["folder"] == str(program.folder / "student-onnx")
    assert done.json["agreement"]["max_difference"] <= done.json["agreement"]["allowed"]
    for words in ("verified", "largest difference", "mean cosine", "of PyTorch's", "written"):
        assert words in done.err
    assert "Warning" not in done.err
    assert "torchvision" not in done.err


def test_a_folder_goes_to_the_hub_as_it_is(program: Program) -> None:
    with running_stub_hub() as hub:
        done = program.run("export", "student", "--push-to-hub", "team/a", **online(hub.url))
        assert done.code == 0, done.err
        assert hub.files == {"team/a": files(program.folder / "student")}
    assert done.out == f"hub        {hub.url}/team/a\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("student",), "there is nothing to do; add --format onnx"),
        (("student", "--format", "onx"), "unknown format 'onx', did you mean 'onnx'?"),
        (("student", "--private", "--format", "onnx"), "--private is for --push-to-hub"),
        (("nowhere", "--format", "onnx"), "'nowhere'"),
        (("student", "--push-to-hub", "student"), "is no name of a repository"),
        (("student", "--push-to-hub", "a/b", "--int8"), "--int8 and --output are for --format"),
    ],
)
def test_a_wrong_request_says_what_to_do(
    program: Program, arguments: tuple[str, ...], sentence: str
) -> None:
    done: Finished = program.run("export", *arguments)
    assert done.code == 2, done.err
    assert sentence in done.err
    assert done.err.count("\n") == 1
