from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.inputs import preparation
from api.inputs.preparation import (
    Pinned,
    build_space,
    check_length,
    ensure_latencies,
    pin,
    possible_start,
    store_warnings,
    stored_latencies,
)
from kdnas.architecture import Architecture
from kdnas.corpus.tokenized import build_corpus
from kdnas.db.engine import Database
from kdnas.distill.calibration import training_tokens
from kdnas.errors import CancelledError, LatencyError, SearchSpaceError, SpecError
from kdnas.latency.device_lock import measuring_lock, training_lock
from kdnas.latency.table import build_latency_table
from kdnas.models.teacher import TeacherHandle
from kdnas.objectives.registry import objective_problem
from kdnas.records import LatencyEntry, LatencyTable, TeacherShape
from kdnas.search_space import SearchSpace
from kdnas.settings import Settings
from kdnas.specs.objective_registry import objective_spec
from kdnas.specs.parts import CorpusSpec, StudentSpec, TeacherSpec
from kdnas.specs.search import LatencySpec, SpaceSpec
from kdnas.testing.tiny_lab import TinyLab, make_tiny_lab
from workers.machine import Machine

# What is tried here is how work runs; that queries find the same is for the repository's tests.
pytestmark = pytest.mark.databases("sqlite")

QUICK = LatencySpec(length=8, budget_seconds=1)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> TinyLab:
    return make_tiny_lab(tmp_path_factory.mktemp("lab"))


def space(*hidden: int) -> SearchSpace:
    return SearchSpace((1, 2), (2,), hidden, (48,), ("gelu",))


def test_pinned_inputs_come_from_the_store(lab: TinyLab, tmp_path: Path) -> None:
    teacher = TeacherSpec(ref=str(tmp_path / "gone"), fingerprint=lab.teacher.fingerprint)
    corpus = CorpusSpec(source=("gone.txt",), fingerprint=lab.corpus.fingerprint)
    pinned = pin(teacher, corpus, lab.store)
    assert pinned.teacher.shape == lab.teacher.shape
    assert pinned.corpus.num_sequences == lab.corpus.num_sequences
    assert (pinned.teacher_spec, pinned.corpus_spec) == (teacher, corpus)


def test_a_teacher_is_checked_before_a_corpus_is_read(lab: TinyLab) -> None:
    def refuse(_: object) -> None:
        raise SpecError("no")

    teacher = TeacherSpec(ref="tiny", fingerprint=lab.teacher.fingerprint)
    with pytest.raises(SpecError, match="no"):
        pin(teacher, CorpusSpec(source=("missing.txt",)), lab.store, check=refuse)


def test_spaces(lab: TinyLab) -> None:
    hs, relations = objective_spec("hs"), objective_spec({"name": "minilmv2", "relation_heads": 12})
    depth = lab.teacher.shape.layers
    assert max(build_space(SpaceSpec(), lab.teacher, hs, "teacher").layers) == depth
    axes = {"layers": (1, 9), "heads": (2,), "hidden": (24, 30), "intermediate": (48,)}
    custom = SpaceSpec(kind="custom", axes=axes)
    mapped = build_space(custom, lab.teacher, hs, "teacher")
    assert (mapped.layers, mapped.hidden) == ((1,), (24, 30))
    related = build_space(
        custom, lab.teacher, relations, "teacher"
    )  # maps no layers, but splits widths
    assert (related.layers, related.hidden) == ((1, 9), (24,))


def test_a_space_without_a_possible_state_says_why(lab: TinyLab) -> None:
    axes = {"layers": (9,), "heads": (2,), "hidden": (24,), "intermediate": (48,)}
    with pytest.raises(SearchSpaceError, match="a student of 9 layers"):
        build_space(
            SpaceSpec(kind="custom", axes=axes), lab.teacher, objective_spec("hs"), "teacher"
        )


def test_a_space_has_only_heads_that_the_teachers_family_can_turn(tmp_path: Path) -> None:
    """ModernBERT's rotary positions turn pairs of values, whatever the objective is."""
    shape = TeacherShape("modernbert", 4, 4, 48, 96, "gelu", 99, 64, 0, "f")
    teacher, hs = TeacherHandle("tiny", tmp_path, shape), objective_spec("hs")
    axes = {"layers": (1, 2), "heads": (2, 4, 12), "hidden": (36, 48), "intermediate": (48,)}
    found = build_space(SpaceSpec(kind="custom", axes=axes), teacher, hs, "teacher")
    pairs = {(state.heads, state.hidden) for state in found.states}
    assert pairs == {(2, 36), (2, 48), (4, 48), (12, 48)}
    assert all(objective_problem(hs, state, shape) is None for state in found.states)
    odd = objective_problem(hs, Architecture(1, 4, 36, 48), shape)
    assert odd
    assert "needs heads of an even width" in odd
    none = SpaceSpec(kind="custom", axes={**axes, "heads": (12,), "hidden": (36,)})
    with pytest.raises(SearchSpaceError, match="width is a multiple of 2"):
        build_space(none, teacher, hs, "teacher")


def test_positions_bound_the_length(lab: TinyLab) -> None:
    check_length("latency.length", 64, lab.teacher)
    with pytest.raises(SpecError, match=r"latency.length \(65\) is above .* \(64\)"):
        check_length("latency.length", 65, lab.teacher)


def test_a_table_is_built_once_and_grows_without_changing(lab: TinyLab, database: Database) -> None:
    first = ensure_latencies(database, QUICK, lab.teacher, space(24))
    assert ensure_latencies(database, QUICK, lab.teacher, space(24)) == first
    grown = ensure_latencies(database, QUICK, lab.teacher, space(24, 48))
    assert grown.teacher_ms == first.teacher_ms
    assert {name: grown.entries[name] for name in first.entries} == first.entries
    new = [e for name, e in grown.entries.items() if name not in first.entries]
    assert len(new) == 2
    assert all(isinstance(e, LatencyEntry) and e.latency_ms > 0 for e in new)


def test_what_goes_on_elsewhere_keeps_the_latencies_it_began_with(
    lab: TinyLab, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ensure_latencies(database, QUICK, lab.teacher, space(24))
    elsewhere = replace(first.profile, length=first.profile.length + 1)  # as other hardware is
    monkeypatch.setattr(preparation, "current_profile", lambda _: elsewhere)
    asked = (database, QUICK, lab.teacher, space(24))
    own = ensure_latencies(*asked)
    assert own.profile == elsewhere
    assert ensure_latencies(*asked, began_with="gone") == own
    assert ensure_latencies(*asked, began_with=first.profile.fingerprint) == first


@pytest.mark.databases("sqlite", "postgresql")
def test_two_searches_that_begin_at_once_share_one_table(
    lab: TinyLab, database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What the second one lacks is added at the pace of the first; nothing is built twice."""
    monkeypatch.setenv("KDNAS_LOCKS", str(tmp_path))
    spaces = [space(24), space(24), space(24, 48)]
    with ThreadPoolExecutor(len(spaces)) as pool:
        found = list(
            pool.map(lambda own: ensure_latencies(database, QUICK, lab.teacher, own), spaces)
        )
    stored = stored_latencies(database, found[0].profile, lab.teacher)
    assert stored is not None
    for table in found:
        assert table.teacher_ms == stored.teacher_ms
        assert {name: stored.entries[name] for name in table.entries} == table.entries


def test_a_build_has_the_machine_for_itself_and_may_begin_anew(
    lab: TinyLab, database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KDNAS_LOCKS", str(tmp_path))
    first = ensure_latencies(database, QUICK, lab.teacher, space(24))
    asked: list[tuple[object, object]] = []

    def build(*arguments: Any, **options: Any) -> LatencyTable:
        with pytest.raises(LatencyError, match="still taken"), measuring_lock(wait_seconds=0):
            pass
        asked.append((options["budget_seconds"], options["exhaustive"]))
        return replace(build_latency_table(*arguments, **options), teacher_ms=100.0)

    monkeypatch.setattr(preparation, "build_latency_table", build)
    again = ensure_latencies(database, QUICK, lab.teacher, space(24), anew=True)
    assert asked == [(1, False)]
    assert again.teacher_ms == 100.0 != first.teacher_ms
    stored = stored_latencies(database, again.profile, lab.teacher)
    assert stored is not None
    assert (stored.teacher_ms, stored.entries) == (100.0, again.entries)


def test_a_wait_for_trainings_is_said(
    lab: TinyLab, database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KDNAS_LOCKS", str(tmp_path))
    said: list[str] = []
    looked = iter(range(100))

    def check() -> None:
        if next(looked) > 1:
            raise CancelledError("it was cancelled")

    with training_lock(), pytest.raises(CancelledError):
        ensure_latencies(
            database, QUICK, lab.teacher, space(24), None, said.append, check, anew=True
        )
    (text,) = said
    assert text.startswith("waiting for trainings or another measurement on this machine to end: ")


def test_a_wait_for_trainings_ends_with_the_search(
    lab: TinyLab, database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KDNAS_LOCKS", str(tmp_path))
    said: list[str] = []

    def check() -> None:
        raise CancelledError("it was cancelled")

    with training_lock(), pytest.raises(CancelledError):
        ensure_latencies(database, QUICK, lab.teacher, space(24), on_wait=said.append, check=check)
    with training_lock(wait_seconds=0):  # nobody stands in the way any more
        pass
    assert said == []


def test_a_store_that_other_hosts_may_not_reach_is_said(tmp_path: Path) -> None:
    home = {"KDNAS_HOME": str(tmp_path)}
    here = Machine("the cluster", 2, 2, 0, 1, 0, False, False, (socket.gethostname(),))
    far = replace(here, hosts=(*here.hosts, "one", "two"))
    own = Settings.from_environment(home)
    assert store_warnings(here, own) == []
    (text,) = store_warnings(far, own)
    assert "the cluster works on other hosts (one and 1 more), and the store" in text
    assert "set KDNAS_STORE to a URL that every node reaches" in text
    for url in (f"{tmp_path}-shared", "s3://bucket/kdnas", "dir://store::file:///shared"):
        assert store_warnings(far, Settings.from_environment(home | {"KDNAS_STORE": url})) == []
    assert store_warnings(far, replace(own, store_url=f"file://{tmp_path}/store"))


def starting(lab: TinyLab, init: str, objective: Any = "hs", tokens: int = 8192) -> Any:
    pinned = Pinned(lab.teacher, lab.corpus, TeacherSpec(), CorpusSpec())
    student = StudentSpec.model_validate({"init": init, "calibration_tokens": tokens})
    return possible_start(student, objective_spec(objective), pinned)


@pytest.fixture(scope="module")
def short_lab(lab: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> TinyLab:
    """The same teacher with less text than twice its width."""
    folder = tmp_path_factory.mktemp("short")
    lines = [" ".join("abcdefghijklmnopqrst"[i : i + 3]) for i in range(16)]
    (folder / "few.txt").write_text("\n".join(lines) + "\n", "utf-8")
    spec = CorpusSpec(source=(str(folder / "few.txt"),), held_out_fraction=0.1)
    return replace(lab, corpus=build_corpus(spec, lab.teacher.folder, lab.store))


def test_enough_text_leaves_a_start_as_it_was_asked_for(lab: TinyLab) -> None:
    for init in ("teacher", "warm", "random", "copy"):
        student, warnings = starting(lab, init)
        assert (student.init, warnings) == (init, [])


@pytest.mark.parametrize("init", ["teacher", "warm"])
def test_too_little_text_makes_students_start_warm_with_a_warning(
    short_lab: TinyLab, init: str
) -> None:
    student, (warning,) = starting(short_lab, init)
    there = training_tokens(short_lab.corpus)
    assert there < 96
    assert student.init == "warm"
    assert warning == (
        "a start that is fitted to the teacher takes at least 96 tokens of training text (2 for "
        f"each of the teacher's 48 channels), and there are {there}; students start warm "
        "(student.init), and what the objective learns beside them at random"
    )


def test_too_little_text_leaves_copies_as_they_are_with_a_warning(short_lab: TinyLab) -> None:
    student, (warning,) = starting(short_lab, "copy")
    assert student.init == "copy"
    assert warning.endswith("; what the objective learns beside students starts at random")


@pytest.mark.parametrize("init", ["teacher", "random"])
def test_too_little_text_for_what_is_fitted_to_an_earlier_student_is_said(
    lab: TinyLab, short_lab: TinyLab, init: str
) -> None:
    earlier = StudentSpec.model_validate(init)
    for chosen, endings in ((lab, []), (short_lab, ["learns beside the student is not fitted"])):
        pinned = Pinned(chosen.teacher, chosen.corpus, TeacherSpec(), CorpusSpec())
        student, warnings = possible_start(
            earlier, objective_spec("hs"), pinned, trained_before=True
        )
        assert student == earlier
        assert len(warnings) == len(endings)
        assert all(w.endswith(end) for w, end in zip(warnings, endings, strict=True))
    earlier = StudentSpec()
    copied = possible_start(earlier, objective_spec("distilbert"), pinned, trained_before=True)
    assert copied == (earlier, [])


def test_starts_that_are_not_fitted_need_no_text(short_lab: TinyLab) -> None:
    assert starting(short_lab, "random")[1] == []
    student, warnings = starting(short_lab, "teacher", {"name": "distilbert"})  # copies layers
    assert (student.init, warnings) == ("teacher", [])


@pytest.mark.parametrize("init", ["warm", "random"])
def test_a_start_that_an_objective_passes_over_is_said_to_be(lab: TinyLab, init: str) -> None:
    assert starting(lab, init, {"name": "distilbert"})[1] == [
        f"distilbert copies the layers of the teacher, so the start {init!r} (student.init) is not "
        "used"
    ]


def test_too_few_tokens_asked_for_are_named_as_such(lab: TinyLab) -> None:
    wide = replace(lab.teacher, shape=replace(lab.teacher.shape, hidden=200))
    student, (warning,) = starting(replace(lab, teacher=wide), "teacher", tokens=256)
    assert student.init == "warm"
    assert "at least 400 tokens" in warning
    assert "student.calibration_tokens asks for 256" in warning
