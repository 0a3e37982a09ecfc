"""A request names what lies below a data root, or on the hub, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.inputs.data_roots import check_model, check_paths, check_pipeline
from api.jobs.files import checkpoints_in_store
from kdnas.errors import RequestError
from kdnas.settings import Settings
from kdnas.specs.distillation import DistillationSpec
from kdnas.specs.parts import ModelSpec
from kdnas.specs.pipeline import PipelineSpec
from kdnas.specs.search import SearchSpec

ARCHITECTURE = "3,12,288,768,gelu"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data root with a model, a text, and links that lead out of it."""
    root = tmp_path / "data"
    (root / "model").mkdir(parents=True)
    (root / "model" / "config.json").write_text("{}")
    (root / "texts").mkdir()
    (root / "texts" / "a.txt").write_text("a")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    (root / "link").symlink_to(outside)
    (root / "leaking").mkdir()
    (root / "leaking" / "a.txt").symlink_to(outside / "secret.txt")
    (root / "circle").symlink_to(root / "circle")
    return root


@pytest.fixture
def settings(tmp_path: Path, root: Path) -> Settings:
    roots = f"{root}:s3://bucket/checkpoints"
    return Settings.from_environment({"KDNAS_HOME": str(tmp_path), "KDNAS_DATA_ROOTS": roots})


@contextmanager
def refused(where: str, said: str = "") -> Iterator[None]:
    with pytest.raises(RequestError) as caught:
        yield
    assert str(caught.value).startswith(where)
    assert said in str(caught.value)


def search(**parts: Any) -> SearchSpec:
    return SearchSpec.read(parts, "test")


def distillation(**parts: Any) -> DistillationSpec:
    return DistillationSpec.read({"architecture": ARCHITECTURE, **parts}, "test")


@pytest.mark.parametrize("ref", ["minilm", "google-bert/bert-base-uncased", "{root}/model"])
def test_teachers_that_may_be_named(ref: str, root: Path, settings: Settings) -> None:
    check_paths(search(teacher=ref.format(root=root)), settings)


@pytest.mark.parametrize(
    "ref",
    [
        "/etc",
        "{root}/../outside",
        "{root}x",
        "{root}/link",
        "{root}/leaking",
        "{root}/circle",
        "../outside",
        "~",
        "~nobody-of-that-name/x",
        "bert-base-uncased",
        "hub:owner/name",
        "x" * 300 + "/" + "y" * 300,
        "{root}/" + "z" * 300,
        "file:///etc",
        "..//..",
        "owner/..",
    ],
)
def test_teachers_that_may_not(ref: str, root: Path, settings: Settings) -> None:
    with refused("teacher.ref"):
        check_paths(search(teacher=ref.format(root=root)), settings)


def test_a_folder_here_that_looks_like_a_hub_id_is_a_path(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "name").mkdir(parents=True)
    with refused("teacher.ref 'owner/name' is outside KDNAS_DATA_ROOTS"):
        check_paths(search(teacher="owner/name"), settings)
    with refused("corpus.source 'hub:owner/name' is no data set of the hub"):
        check_paths(search(corpus="hub:owner/name"), settings)


@pytest.mark.parametrize(
    "source", ["pydocs", "hub:nyu-mll/glue", "{root}/texts", "{root}/texts/*.txt", "{root}/te*/a*"]
)
def test_corpora_that_may_be_named(source: str, root: Path, settings: Settings) -> None:
    check_paths(search(corpus=["pydocs", source.format(root=root)]), settings)


def test_a_glob_of_too_many_files_is_refused(
    root: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(9):
        (root / "texts" / f"{number}.txt").write_text("a")
    monkeypatch.setattr("kdnas.corpus.globs.MOST_MATCHES", 2)
    with pytest.raises(RequestError, match="more than 2 files match the glob"):
        check_paths(search(corpus=f"{root}/texts/*.txt"), settings)


def test_a_glob_that_has_no_end_is_refused(
    root: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (root / name).symlink_to(root)
    with pytest.raises(RequestError, match="no file matches the glob"):
        check_paths(search(corpus=f"{root}/**/*.nope"), settings)
    (root / "a/b/c/d/e").mkdir(parents=True)
    monkeypatch.setattr("kdnas.corpus.globs.MOST_NAMES", 20)
    with pytest.raises(RequestError, match="looks at more than 20 names") as error:
        check_paths(search(corpus=f"{root}/{'**/*/' * 20}*.nope"), settings)
    assert [one.field for one in error.value.fields] == ["corpus.source"]


@pytest.mark.parametrize(
    "source",
    [
        "/etc/*",
        "*",
        "nyu-mll/glue",
        "hub:/etc",
        "hub:csv",
        "{root}/lin[k]/*",
        "{root}/*/secret.txt",
        "{root}/t*/../../outside/*",
        "{root}/link/*.txt",
        "{root}/leaking",
        "{root}/leaking/*",
        "~nobody-of-that-name/*",
    ],
)
def test_corpora_that_may_not(source: str, root: Path, settings: Settings) -> None:
    with refused("corpus.source"):
        check_paths(search(corpus=["pydocs", source.format(root=root)]), settings)


def test_an_earlier_student_may_teach_or_begin(tmp_path: Path, settings: Settings) -> None:
    (tmp_path / "students" / "s1").mkdir(parents=True)
    (tmp_path / "students" / "s1" / "config.json").write_text("{}")
    student = str(tmp_path / "students" / "s1")
    check_paths(distillation(student={"init_from": student}, teacher=student), settings)
    with refused("student.init_from.ref"):
        check_paths(distillation(student={"init_from": str(tmp_path / "other")}), settings)
    with refused("output"):
        check_paths(distillation(output=student), settings)


def test_what_kdnas_keeps_for_itself_is_not_named(tmp_path: Path, root: Path) -> None:
    home, store = root / "home", root / "store"
    for folder in (home, home / "students" / "one", store):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
    settings = Settings.from_environment(
        {"KDNAS_HOME": str(home), "KDNAS_STORE": f"file://{store}", "KDNAS_DATA_ROOTS": str(root)}
    )
    check_paths(search(teacher=str(home / "students" / "one")), settings)
    for folder in (home, store):
        with refused("teacher.ref", f"lies in {folder}, which kdnas keeps for itself"):
            check_paths(search(teacher=str(folder)), settings)
        with refused("corpus.source", f"lies in {folder}, which kdnas keeps for itself"):
            check_paths(search(corpus=str(folder)), settings)
        with refused("output", f"lies in {folder}, which kdnas keeps for itself"):
            check_paths(distillation(output=f"{folder}/x"), settings)


def test_output_and_checkpoints_lie_below_a_root(root: Path, settings: Settings) -> None:
    inside = str(root / "new" / "student")
    check_paths(distillation(output=inside, training={"checkpoints": inside}), settings)
    with refused("output '/srv/student' is outside KDNAS_DATA_ROOTS"):
        check_paths(distillation(output="/srv/student"), settings)
    with refused("output"):
        check_paths(distillation(output=f"{root}/link/student"), settings)
    with refused("training.checkpoints"):
        check_paths(distillation(training={"checkpoints": "/srv/checkpoints"}), settings)


def test_a_stored_spec_of_a_run_on_a_cluster_may_be_sent_again(settings: Settings) -> None:
    place = checkpoints_in_store(settings)
    assert place == f"{settings.home}/store/checkpoints"
    check_paths(distillation(training={"checkpoints": place}), settings)
    with refused("training.checkpoints"):
        check_paths(distillation(training={"checkpoints": f"{settings.home}/store"}), settings)


@pytest.mark.parametrize("url", ["s3://bucket/checkpoints", "s3://bucket/checkpoints/mine"])
def test_a_url_below_a_root_that_is_one(url: str, settings: Settings) -> None:
    check_paths(distillation(training={"checkpoints": url}), settings)


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/checkpoints-of-others",
        "s3://bucket/checkpoints/../others",
        "s3://bucket",
        "gs://bucket/checkpoints",
        "file:///etc",
        "s3://bucket/checkpoints/x::file:///etc",
        "simplecache::s3://bucket/checkpoints",
        "ROOT::file:///x",
        "ROOT/x::memory://y",
        "ROOT/file:///etc",
    ],
)
def test_urls_outside(url: str, root: Path, settings: Settings) -> None:
    """Also those that begin as a path below a root does: fsspec reads the end of a chain."""
    place = url.replace("ROOT", str(root))
    with refused("training.checkpoints"):
        check_paths(distillation(training={"checkpoints": place}), settings)


def test_a_chain_that_begins_where_the_service_works(
    root: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    with refused("training.checkpoints"):
        check_paths(distillation(training={"checkpoints": "simplecache::file:///x"}), settings)


def test_without_data_roots_no_path_may_be_named(root: Path, settings: Settings) -> None:
    with refused("corpus.source"):
        check_paths(search(corpus=str(root)), replace(settings, data_roots=()))


def test_code_of_ones_own_wants_a_setting(settings: Settings) -> None:
    own = search(controller={"strategy": "os:system"})
    with refused("controller.strategy 'os:system' would run code of its own"):
        check_paths(own, settings)
    check_paths(own, replace(settings, allow_custom_code=True))


def test_only_the_cluster_of_the_service_may_be_named(settings: Settings) -> None:
    spec = search(backend={"name": "ray", "address": "ray://there:10001"})
    with refused("backend.address 'ray://there:10001' is not the cluster of this service"):
        check_paths(spec, settings)
    check_paths(spec, replace(settings, ray_address="ray://there:10001"))
    with refused("training.address"):
        check_paths(distillation(training={"address": "there:6379"}), settings)


def test_a_model_by_itself(root: Path, settings: Settings) -> None:
    check_model(ModelSpec(ref=str(root / "model")), "teacher", settings)
    with refused("teacher '/etc' is outside"):
        check_model(ModelSpec(ref="/etc"), "teacher", settings)


@pytest.mark.parametrize(
    ("part", "field", "said"),
    [
        ({"corpus": "{root}/none.txt"}, "corpus.source", "corpus source '{root}/none.txt' is not"),
        ({"corpus": "{root}/*.jsonl"}, "corpus.source", "no file matches the glob"),
        ({"corpus": "{root}/model"}, "corpus.source", "no text found in {root}/model"),
        ({"teacher": "{root}/none"}, "teacher.ref", "model folder '{root}/none' does not exist"),
        ({"teacher": "{root}/texts"}, "teacher.ref", "has no config.json in {root}/texts"),
        ({"teacher": "{root}/texts/a.txt"}, "teacher.ref", "is a file; give the model's folder"),
    ],
)
def test_what_is_not_there_is_refused_at_its_field(
    part: dict[str, str], field: str, said: str, root: Path, settings: Settings
) -> None:
    part = {key: value.format(root=root) for key, value in part.items()}
    for spec in (search(**part), distillation(**part)):
        with pytest.raises(RequestError) as caught:
            check_paths(spec, settings)
        assert said.format(root=root) in str(caught.value)
        assert [one.field for one in caught.value.fields] == [field]
    pipeline = PipelineSpec.read({"search": part, "evaluation": {"suite": "glue"}}, "test")
    with pytest.raises(RequestError) as caught:
        check_pipeline(pipeline, settings)
    assert [one.field for one in caught.value.fields] == [f"search.{field}"]


def test_a_text_that_cannot_be_read_is_refused(
    root: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever runs tests as root may read everything: the system's answer stands in for it."""
    closed = root / "texts" / "a.txt"
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != closed)
    with pytest.raises(RequestError, match=rf"cannot read {closed}: Permission denied"):
        check_paths(search(corpus=str(root / "texts")), settings)
