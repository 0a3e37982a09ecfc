"""A sweep: whole, in pieces, with states that fail, and refused where it would be another one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.inputs.preparation import Watchers
from api.sweeps.run import (
    create_sweep,
    drawn_states,
    prepare_sweep,
    run_stored_sweep,
    states_to_do,
)
from api.sweeps.table import sweep_table
from kdnas.architecture import Architecture
from kdnas.db.engine import Database
from kdnas.db.exploration import losses
from kdnas.db.models import Sweep
from kdnas.db.queue.transitions import resume_here
from kdnas.db.repository import jobs, sweeps
from kdnas.errors import (
    ConflictError,
    NotFoundError,
    RequestError,
    SpecError,
    TrainingError,
)
from kdnas.reach import Reach
from kdnas.records import MiniKDRequest, SweptState
from kdnas.search_space import SearchSpace
from kdnas.settings import Settings
from kdnas.specs.sweep import SweepSpec
from kdnas.tabular.files import read_table, write_table
from kdnas.tabular.table import merged
from kdnas.testing.commands import Program
from kdnas.testing.fake_backend import FakeBackend
from workers.backend import LocalBackend

# What is tried here is how work runs; that queries find the same is for the repository's tests.
pytestmark = pytest.mark.databases("sqlite")

AXES = {"layers": [1, 2], "heads": [2], "hidden": [24], "intermediate": [48, 96]}
NUM_STATES = 4 * len(SearchSpace.paper().activation)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Program.make(tmp_path_factory.mktemp("inputs")).folder


class Place:
    """A database, and a home with a store that all tests share."""

    def __init__(self, database: Database, inputs: Path) -> None:
        self.database, self.inputs = database, inputs
        self.settings = Settings.from_environment({"KDNAS_HOME": str(inputs / "home")})

    def spec(self, **entries: Any) -> SweepSpec:
        data = {
            "teacher": str(self.inputs / "teacher"),
            "corpus": {"source": str(self.inputs / "corpus.txt"), "max_length": 16},
            "space": {"axes": AXES},
            "proxy": {"steps": 6, "batch_size": 8, "held_out": 16, "fraction": 0.5},
            "latency": {"length": 8, "budget_seconds": 0.2},
            "backend": {"name": "local", "threads": 1, "group_size": 2},
        }
        return SweepSpec.read({**data, **entries}, "sweep")

    def create(self, **entries: Any) -> str:
        return create_sweep(prepare_sweep(self.spec(**entries), self.settings), self.database).id

    def run(self, sweep_id: str, **options: Any) -> str:
        return run_stored_sweep(sweep_id, self.database, self.settings, **options)

    def states(self, sweep_id: str) -> list[SweptState]:
        with self.database.read() as session:
            return list(sweeps.swept_states(session, sweep_id))


@pytest.fixture
def place(database: Database, inputs: Path) -> Place:
    return Place(database, inputs)


def all_states(place: Place) -> tuple[Architecture, ...]:
    return prepare_sweep(place.spec(), place.settings).space.states


def read(states: list[SweptState]) -> list[object]:
    """All of states that does not depend on the time."""
    return [
        (
            s.index,
            s.seed,
            str(s.architecture),
            s.error,
            [(r.step, r.losses.relative) for r in s.readings],
        )
        for s in states
    ]


def test_a_sweep_reads_every_state_and_its_trainings_are_known(place: Place) -> None:
    news = []
    sweep_id = place.create(steps=[0, 2, 5], seeds=[1, 2])
    assert place.run(sweep_id, watchers=Watchers(progress=news.append)) == "succeeded"
    states = place.states(sweep_id)
    assert [(s.index, s.seed) for s in states] == [
        (index, seed) for index in range(NUM_STATES) for seed in (1, 2)
    ]
    assert all([r.step for r in s.readings] == [0, 2, 5] for s in states)
    assert len({s.readings[-1].losses for s in states}) == 2 * NUM_STATES
    assert news[-1].done == news[-1].total == 2 * NUM_STATES
    with place.database.read() as session:
        row = jobs.get_job(session, sweep_id, Sweep)
        assert (row.done, row.total) == (2 * NUM_STATES, 2 * NUM_STATES)
        facts = sweeps.sweep_facts(session, sweep_id)
        assert facts is not None
        assert facts.num_states == NUM_STATES
    prepared = prepare_sweep(place.spec(steps=[0, 2, 5], seeds=[1, 2]), place.settings)
    context = prepared.with_proxy(prepared.spec.proxy_of(2)).fingerprint
    with place.database.read() as session:
        known = losses.known_losses(session, context, prepared.space.states)
    assert known[str(states[1].architecture)].losses == states[1].readings[-1].losses
    assert len(known) == NUM_STATES


def test_reading_alone_trains_nothing_and_reads_what_a_training_starts_from(place: Place) -> None:
    trained, starts = place.create(steps=[0, 5]), place.create()
    assert place.run(trained) == place.run(starts) == "succeeded"
    first = [(s.index, s.readings[0].losses.relative) for s in place.states(trained)]
    assert [(s.index, s.readings[0].losses.relative) for s in place.states(starts)] == first
    assert all(len(s.readings) == 1 for s in place.states(starts))
    with place.database.read() as session:
        context = prepare_sweep(place.spec(), place.settings).context.fingerprint
        assert not losses.known_losses(session, context, all_states(place))


def test_in_pieces_it_finds_the_same(place: Place) -> None:
    """Stopped after each few states, and gone on with; what was done is not done again."""
    whole, pieces = place.create(steps=[0, 3]), place.create(steps=[0, 3])
    place.run(whole)
    told: list[int] = []
    statuses = []
    for _ in range(2 * NUM_STATES):
        before = len(place.states(pieces))
        status = place.run(
            pieces,
            watchers=Watchers(progress=lambda news: told.append(news.done)),
            should_stop=lambda before=before: len(place.states(pieces)) > before + 2,
        )
        statuses.append(status)
        if status == "succeeded":
            break
        assert status == "paused"
    assert len(statuses) > 2
    assert told == sorted(told)
    assert read(place.states(pieces)) == read(place.states(whole))


@pytest.mark.parametrize("at_once", [False, True])
def test_states_at_work_come_to_their_end_unless_it_is_to_stop_at_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    workers, told, sweep_id = Asked(place, monkeypatch), list[str](), place.create()
    status = place.run(
        sweep_id,
        watchers=Watchers(progress=lambda news: told.append(news.text)),
        should_stop=lambda: any("at step" in text for text in told),
        at_once=lambda: at_once,
    )
    assert status == "paused"
    assert len(place.states(sweep_id)) == (0 if at_once else 3)  # a group of the fake workers
    workers.take()
    assert place.run(sweep_id) == "succeeded"
    assert len(workers.take()) == NUM_STATES - (0 if at_once else 3)


def test_fewer_states_are_the_first_of_more(place: Place) -> None:
    space = prepare_sweep(place.spec(), place.settings).space
    few, many = (drawn_states(place.spec(states=n, draw_seed=3), space) for n in (3, 6))
    assert many[:3] == few
    assert sorted(drawn_states(place.spec(), space)) == list(range(NUM_STATES))
    assert drawn_states(place.spec(draw_seed=4), space) != drawn_states(place.spec(), space)
    sweep_id = place.create(states=3, draw_seed=3)
    place.run(sweep_id)
    assert [s.index for s in place.states(sweep_id)] == sorted(few)


def table_of(place: Place, sweep_id: str, file: Path) -> str:
    with place.database.read() as session:
        write_table(sweep_table(session, sweep_id), file)
    return str(file)


def test_states_that_a_table_has_are_left_out_and_both_parts_are_the_whole(
    place: Place, tmp_path: Path
) -> None:
    """As on a second machine, which has only the file of what the first one did."""
    whole, first = place.create(steps=[0, 3]), place.create(steps=[0, 3], states=5)
    place.run(whole)
    place.run(first)
    file = table_of(place, first, tmp_path / "first.parquet")
    rest = place.create(steps=[0, 3], without=file)
    place.run(rest, should_stop=lambda: len(place.states(rest)) > 2)
    Path(file).rename(tmp_path / "gone.parquet")
    assert place.run(rest) == "succeeded"
    done = [s.index for s in place.states(rest)]
    assert sorted([*done, *(s.index for s in place.states(first))]) == list(range(NUM_STATES))
    with place.database.read() as session:
        tables = [sweep_table(session, sweep) for sweep in (rest, whole)]
    parts = [read_table(tmp_path / "gone.parquet"), tables[0]]
    assert merged(parts).rows == tables[1].rows


def test_a_state_that_lacks_a_reading_or_a_seed_is_not_left_out(
    place: Place, tmp_path: Path
) -> None:
    one = place.create(steps=[0, 3], states=5)
    place.run(one)
    file = table_of(place, one, tmp_path / "one.parquet")
    drawn = drawn_states(place.spec(), SearchSpace.from_axes(AXES))
    for entries, left in (
        ({"steps": [0, 3]}, drawn[5:]),
        ({"steps": [3]}, drawn[5:]),
        ({"steps": [0, 1, 3]}, drawn),
        ({"steps": [0, 4]}, drawn),
        ({"steps": [0, 3], "seeds": [0, 1]}, drawn),
    ):
        spec = place.spec(without=file, **entries)
        assert states_to_do(prepare_sweep(spec, place.settings)) == left


def test_a_table_is_opened_within_reach_when_the_work_begins(place: Place, tmp_path: Path) -> None:
    """Whoever asked may have put a link in its place since it was looked at."""
    root, secret = tmp_path / "root", tmp_path / "secret.csv"
    root.mkdir()
    secret.write_text("a password\n")
    (root / "own.csv").symlink_to(secret)
    prepared = prepare_sweep(place.spec(without=str(root / "own.csv")), place.settings)
    with pytest.raises(RequestError, match="leads out of the folders") as raised:
        states_to_do(prepared, Reach.below([root]))
    assert "password" not in str(raised.value)


def test_a_table_that_a_sweep_cannot_go_without_is_refused_before_anything_is_stored(
    place: Place, tmp_path: Path
) -> None:
    sweep_id = place.create(steps=[0, 3], states=2)
    place.run(sweep_id)
    file = table_of(place, sweep_id, tmp_path / "two.parquet")
    csv = table_of(place, sweep_id, tmp_path / "two.csv")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"without": file, "states": 2}, "two.parquet) has all 2 states of this sweep already"),
        ({"without": csv}, "another has none, as a CSV file"),
        ({"without": "nobody"}, "'nobody' is neither a .parquet or .csv file nor one of"),
        ({"without": str(tmp_path / "no.parquet")}, "no.parquet cannot be read"),
        ({"without": "minilm"}, "is a table of other trainings: the space (heads: "),
        (
            {"without": file, "proxy": {**place.spec().proxy.to_json(), "batch_size": 4}},
            "what decides the losses (proxy.batch_size: 8, 4) is not the same",
        ),
    ]
    for entries, said in cases:
        with pytest.raises(SpecError) as raised:
            place.create(**{"steps": [0, 3], "name": "refused", **entries})
        assert said in str(raised.value)
        with place.database.read() as session, pytest.raises(NotFoundError):
            sweeps.get_sweep(session, "refused")


def test_a_state_that_fails_is_told_and_left_out(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = str(all_states(place)[2])
    backend = FakeBackend(fail=frozenset({bad}))
    monkeypatch.setattr("api.inputs.mini_kd.build_backend", lambda *_: backend)
    sweep_id, news = place.create(), []
    assert place.run(sweep_id, watchers=Watchers(progress=news.append)) == "succeeded"
    failures = [item.failure for item in news if item.failure]
    assert failures == [f"{bad} failed: out of memory with a group of one"]
    (failed,) = [s for s in place.states(sweep_id) if s.error]
    assert (str(failed.architecture), failed.readings) == (bad, ())
    assert backend.num_closed == 1


class Asked:
    """Workers that fail at some states, and note which ones they were asked for."""

    def __init__(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names = list(map(str, all_states(place)))
        self.fail: frozenset[str] = frozenset()
        self.asked: list[str] = []
        monkeypatch.setattr("api.inputs.mini_kd.build_backend", lambda *_: self.backend())

    def backend(self) -> FakeBackend:
        noted = self.asked

        class Noting(FakeBackend):
            def run(self, requests: Any, *more: Any) -> Any:
                noted.extend(str(request.architecture) for request in requests)
                return super().run(requests, *more)

        return Noting(fail=self.fail)

    def take(self) -> list[str]:
        """What was asked for since the last time, in the order of the space."""
        found = sorted(self.asked, key=self.names.index)
        self.asked.clear()
        return found


def resume(place: Place, sweep_id: str) -> None:
    with place.database.write() as session:
        resume_here(session, sweep_id)


def num_failed(place: Place, sweep_id: str) -> int:
    with place.database.read() as session:
        return jobs.get_job(session, sweep_id).num_failed(session)


def test_what_failed_is_tried_again_when_a_user_resumes_the_sweep(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers, sweep_id = Asked(place, monkeypatch), place.create()
    bad = workers.names[2:5]
    workers.fail = frozenset(bad)
    assert place.run(sweep_id) == "succeeded"
    assert num_failed(place, sweep_id) == 3
    workers.take()
    workers.fail = frozenset(bad[:1])
    resume(place, sweep_id)
    assert place.run(sweep_id) == "succeeded"
    assert (workers.take(), num_failed(place, sweep_id)) == (bad, 1)
    workers.fail = frozenset()
    resume(place, sweep_id)
    news: list[tuple[int, int]] = []
    watchers = Watchers(progress=lambda item: news.append((item.done, item.total)))
    assert place.run(sweep_id, watchers=watchers) == "succeeded"
    assert (workers.take(), num_failed(place, sweep_id)) == (bad[:1], 0)
    assert (news[0], news[-1]) == ((NUM_STATES - 1, NUM_STATES), (NUM_STATES, NUM_STATES))
    assert [state.index for state in place.states(sweep_id)] == list(range(NUM_STATES))
    resume(place, sweep_id)
    with pytest.raises(ConflictError, match="has succeeded; start a new one"):
        place.run(sweep_id)
    assert workers.take() == []


def test_cut_off_while_it_tries_again_it_tries_none_twice(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed is started again by nobody who has asked for what failed."""
    workers, sweep_id = Asked(place, monkeypatch), place.create()
    workers.fail = frozenset(workers.names[:4])
    place.run(sweep_id)
    resume(place, sweep_id)
    workers.take()

    def killed(news: Any) -> None:
        if news.done == NUM_STATES - 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        place.run(sweep_id, watchers=Watchers(progress=killed))
    with place.database.read() as session:
        assert jobs.status_of(session, sweep_id) == "running"
    assert workers.take() == workers.names[:4]
    done = {str(state.architecture) for state in place.states(sweep_id)}
    assert len(done) == NUM_STATES - 2
    assert place.run(sweep_id) == "succeeded"
    assert workers.take() == [name for name in workers.names if name not in done]
    assert num_failed(place, sweep_id) == 4


def test_a_paused_sweep_tries_again_what_failed_before_the_pause(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers, sweep_id = Asked(place, monkeypatch), place.create()
    with place.database.read() as session:
        drawn = drawn_states(place.spec(), SearchSpace.from_axes(AXES))
        assert jobs.status_of(session, sweep_id) == "queued"
    workers.fail = frozenset(workers.names[index] for index in drawn[:2])
    paused = place.run(sweep_id, should_stop=lambda: len(place.states(sweep_id)) > 4)
    assert (paused, num_failed(place, sweep_id)) == ("paused", 2)
    read_before = {str(s.architecture) for s in place.states(sweep_id) if s.error is None}
    workers.take()
    workers.fail = frozenset()
    resume(place, sweep_id)
    assert place.run(sweep_id) == "succeeded"
    assert not read_before & set(workers.take())
    assert num_failed(place, sweep_id) == 0
    assert len(place.states(sweep_id)) == NUM_STATES


def test_where_it_cannot_go_on_what_failed_is_not_forgotten(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers, sweep_id = Asked(place, monkeypatch), place.create()
    workers.fail = frozenset(workers.names[:1])
    place.run(sweep_id)
    before = read(place.states(sweep_id))
    with place.database.write() as session:
        facts = sweeps.sweep_facts(session, sweep_id)
        assert facts is not None
        sweeps.set_sweep_facts(session, sweep_id, replace(facts, context={"engine_version": "0"}))
    resume(place, sweep_id)
    with pytest.raises(SpecError, match="cannot go on"):
        place.run(sweep_id)
    assert read(place.states(sweep_id)) == before


def test_a_sweep_of_which_nothing_can_be_read_has_failed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = frozenset(map(str, all_states(place)))
    monkeypatch.setattr("api.inputs.mini_kd.build_backend", lambda *_: FakeBackend(fail=names))
    sweep_id = place.create()
    with pytest.raises(TrainingError, match=rf"none of the {NUM_STATES} states could be read"):
        place.run(sweep_id)
    with place.database.read() as session:
        assert jobs.status_of(session, sweep_id) == "failed"
        with pytest.raises(ConflictError, match="has read no state yet"):
            sweep_table(session, sweep_id)
        with pytest.raises(NotFoundError, match="there is no sweep 'nobody'"):
            sweep_table(session, "nobody")
    monkeypatch.setattr("api.inputs.mini_kd.build_backend", lambda *_: FakeBackend())
    resume(place, sweep_id)
    assert place.run(sweep_id) == "succeeded"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"axes": {**AXES, "activation": ["gelu"]}}, "axis layers"),
        ({"num_states": 7}, f"the number of states (7, now {NUM_STATES}) changed"),
        ({"context": {"engine_version": "0"}}, "what decides losses, such as the version of the"),
    ],
)
def test_it_does_not_go_on_in_another_space(
    place: Place, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], said: str
) -> None:
    sweep_id = place.create()
    calls = iter(range(100))
    place.run(sweep_id, should_stop=lambda: next(calls) > 8)
    with place.database.write() as session:
        facts = sweeps.sweep_facts(session, sweep_id)
        assert facts is not None
        if "axes" in changed:
            axes = {**facts.axes, "layers": [1, 2, 3]}
            changed = {"axes": axes}
        sweeps.set_sweep_facts(session, sweep_id, replace(facts, **changed))
    before = read(place.states(sweep_id))
    with pytest.raises(SpecError) as raised:
        place.run(sweep_id)
    assert said in str(raised.value)
    assert str(raised.value).endswith("start a new sweep")
    assert read(place.states(sweep_id)) == before


def test_more_states_than_there_are_is_refused(place: Place) -> None:
    with pytest.raises(
        SpecError, match=rf"states \(99\) are more than the space has \({NUM_STATES}"
    ):
        place.create(states=99)


def test_its_table_has_every_reading_with_latency_and_size(place: Place) -> None:
    sweep_id = place.create(steps=[0, 4], seeds=[0, 1], states=3, name="small")
    place.run(sweep_id)
    with place.database.read() as session:
        table = sweep_table(session, "small")
    states = place.states(sweep_id)
    assert {(row.key.architecture, row.key.seed, row.key.step): row.loss for row in table.rows} == {
        (s.architecture, s.seed, r.step): r.losses.relative for s in states for r in s.readings
    }
    assert {row.key.schedule for row in table.rows} == {4}
    assert all(found.latency_ms > 0 for found in table.states.values())
    assert all((found.params_millions or 0) > 0 for found in table.states.values())
    assert len(table.space) == NUM_STATES
    proxy = table.card["context"]["proxy"]
    assert not proxy.keys() & {"steps", "epochs", "seed"}
    assert proxy["batch_size"] == 8
    assert json.loads(json.dumps(dict(table.card))) == table.card


def test_workers_are_let_go_where_it_stops(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    close = LocalBackend.close

    def noted(backend: LocalBackend) -> None:
        closed.append(True)
        close(backend)

    monkeypatch.setattr(LocalBackend, "close", noted)
    sweep_id = place.create(steps=[0, 3])
    assert place.run(sweep_id, should_stop=lambda: bool(place.states(sweep_id))) == "paused"
    assert closed == [True]


def test_states_are_asked_for_with_their_readings(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[MiniKDRequest] = []

    class Noting(FakeBackend):
        def run(self, requests: Any, *more: Any) -> Any:
            asked.extend(requests)
            return super().run(requests, *more)

    monkeypatch.setattr("api.inputs.mini_kd.build_backend", lambda *_: Noting())
    place.run(place.create(steps=[0, 2, 5], states=2))
    assert [(r.read_after, r.last_step) for r in asked] == [((0, 2, 5), 5)] * 2
