from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kdnas.distill.hub import check_push, push_folder
from kdnas.errors import RequestError, StoreError
from kdnas.testing.stub_hub import TOKEN, StubHub, running_stub_hub

REPO = "team/student"


@pytest.fixture(scope="module")
def running() -> Iterator[StubHub]:
    with running_stub_hub() as found:
        yield found


@pytest.fixture
def hub(running: StubHub, monkeypatch: pytest.MonkeyPatch) -> StubHub:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
    running.files.clear()
    running.private.clear()
    running.messages.clear()
    return running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    student = tmp_path / "student"
    (student / "tensorboard").mkdir(parents=True)
    (student / "model.safetensors").write_bytes(bytes(range(256)) * 40)
    (student / "README.md").write_text("---\nlibrary_name: transformers\n---\n# Ünïcode\n", "utf-8")
    (student / "tensorboard" / "events.out.tfevents.student").write_bytes(b"\0\1\2")
    return student


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_every_file_arrives_as_it_is(hub: StubHub, folder: Path) -> None:
    check_push(REPO, endpoint=hub.url)
    assert not hub.files  # checking makes nothing
    assert push_folder(folder, REPO, endpoint=hub.url) == f"{hub.url}/{REPO}"
    assert hub.files == {REPO: contents(folder)}
    assert hub.private == {REPO: False}
    assert hub.messages == ["Upload a model made with kdnas"]


def test_a_repository_may_be_private_and_pushed_to_again(hub: StubHub, folder: Path) -> None:
    push_folder(folder, REPO, private=True, endpoint=hub.url)
    assert hub.private == {REPO: True}
    (folder / "config.json").write_text("{}")
    push_folder(folder, REPO, endpoint=hub.url, message="Again")
    assert hub.files == {REPO: contents(folder)}
    assert hub.messages[-1] == "Again"


@pytest.mark.parametrize(
    "name", ["student", "a/b/c", "team/", "/student", "team/a b", "team/x--y", "../student", ""]
)
def test_a_name_that_is_none_is_refused(hub: StubHub, folder: Path, name: str) -> None:
    with pytest.raises(RequestError, match=r"is no name of a repository; give owner/name"):
        check_push(name, endpoint=hub.url)
    with pytest.raises(RequestError, match="no name of a repository"):
        push_folder(folder, name, endpoint=hub.url)


def test_without_a_token_one_is_asked_for(
    hub: StubHub, monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(RequestError, match=r"needs a token of the hub; .* hf auth login"):
        check_push(REPO, endpoint=hub.url)
    with pytest.raises(RequestError, match="needs a token"):
        push_folder(folder, REPO, endpoint=hub.url)


def test_a_token_that_is_not_known_is_named_as_the_cause(
    hub: StubHub, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_expired")
    for attempt in (
        lambda: check_push(REPO, endpoint=hub.url),
        lambda: push_folder(folder, REPO, endpoint=hub.url),
    ):
        with pytest.raises(RequestError, match=r"does not know the token .* may have expired"):
            attempt()


def test_a_repository_of_others_is_refused(hub: StubHub, folder: Path) -> None:
    with pytest.raises(RequestError, match=r"may not write to theirs/student; .*access to theirs"):
        push_folder(folder, "theirs/student", endpoint=hub.url)


def test_a_hub_out_of_reach_is_work_that_failed(folder: Path, hub: StubHub) -> None:
    nowhere = "http://127.0.0.1:9"
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:9 cannot be reached .*HF_ENDPOINT"):
        check_push(REPO, endpoint=nowhere)
    with pytest.raises(StoreError, match=r"cannot be reached"):
        push_folder(folder, REPO, endpoint=nowhere)


def test_an_empty_folder_is_not_pushed(hub: StubHub, tmp_path: Path) -> None:
    for empty in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(RequestError, match="nothing to push"):
            push_folder(empty, REPO, endpoint=hub.url)
    assert not hub.files
