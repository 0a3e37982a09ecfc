"""Searches over REST: asked for, listed, followed, changed, deleted, on both databases."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update

from api.http.schemas import Page
from api.searches.schemas import (
    AnalysisShape,
    CandidateDetail,
    Candidates,
    CandidateShape,
    CoverageShape,
    EpisodeShape,
    Points,
    Ranking,
    SearchDetail,
    SearchShape,
)
from kdnas.architecture import Architecture
from kdnas.cli.screens.event_words import in_words
from kdnas.db.engine import Database
from kdnas.db.journal import DatabaseJournal
from kdnas.db.lists.candidate_pages import FIELDS
from kdnas.db.models import Search
from kdnas.db.repository import events, jobs, latencies, searches
from kdnas.records import Reading, SearchFacts
from kdnas.search.hypervolume import hypervolume
from kdnas.search.reward import RewardFunction, pareto_front, ranking
from kdnas.search.summary import summarise
from kdnas.search_space import SearchSpace
from kdnas.specs.search import RewardSpec, SearchSpec
from kdnas.testing import demo_data
from kdnas.testing.benchmark_space import benchmark_start
from kdnas.testing.journal_contract import (
    CONTEXT,
    LARGE,
    LOSSES,
    SMALL,
    new_candidates,
    result_of,
)
from kdnas.testing.many_candidates import add_many_candidates
from kdnas.testing.truth import assert_shape

SEARCHES = "/api/v1/searches"


@pytest.fixture
def many(database: Database) -> str:
    return add_many_candidates(database, 600, per_episode=20)


def test_a_search_is_asked_for(client: TestClient, database: Database) -> None:
    answer = client.post(SEARCHES, json={"name": "mine", "controller": {"episodes": 2}})
    made = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"{SEARCHES}/{made['id']}"
    assert (made["status"], made["owner_kind"], made["name"]) == ("queued", "service", "mine")
    assert made["spec"]["controller"]["episodes"] == 2
    assert made["spec"]["proxy"]["fraction"] == 0.3  # defaults are written out
    assert_shape(SearchDetail, made)
    assert client.get(answer.headers["location"]).json() == made
    assert client.get(f"{SEARCHES}/mine").json() == made
    with database.read() as session:
        assert searches.get_search(session, "mine").status == "queued"


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"controller": {"episodes": 0}}, "body.controller.episodes"),
        ({"controler": {}}, "body.controler"),
        ({"reward": {"alpha": 1}}, "body.reward.alpha"),
        ({"name": "with space"}, "body.name"),
        ({"goal": "limit"}, "body.limits"),
        ({"objective": {"name": {}}}, "body.objective"),
    ],
)
def test_a_wrong_spec_is_told_by_place(
    client: TestClient, body: dict[str, Any], where: str
) -> None:
    answer = client.post(SEARCHES, json=body)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert [problem["where"] for problem in answer.json()["errors"]] == [where]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"controller": {"strategy": "contoller"}}, "did you mean 'controller'"),
        ({"space": {"axes": {"layers": [0]}}}, "axis layers"),
        ({"teacher": "/etc"}, "KDNAS_DATA_ROOTS"),
        ({"corpus": "/etc/passwd"}, "KDNAS_DATA_ROOTS"),
        ({"reward": {"alpha": -0.1, "latency_price": 0.2}}, "contradict each other"),
        ({"proxy": {"keep": 2}}, "add proxy.rungs"),
    ],
)
def test_what_cannot_be_done_is_refused_at_once(
    client: TestClient, body: dict[str, Any], said: str
) -> None:
    answer = client.post(SEARCHES, json=body)
    assert answer.status_code == 422
    assert said in answer.json()["detail"]
    assert client.get(SEARCHES).json()["items"] == []


def test_a_corpus_that_is_not_there_is_refused_at_once_and_at_its_field(
    client: TestClient, tmp_path: Path
) -> None:
    answer = client.post(SEARCHES, json={"corpus": str(tmp_path / "data" / "nothing.txt")})
    assert answer.status_code == 422
    (problem,) = answer.json()["errors"]
    assert problem["where"] == "body.corpus.source"
    assert "nothing.txt" in problem["message"]
    assert client.get(SEARCHES).json()["items"] == []


def test_a_corpus_below_a_data_root_is_taken(client: TestClient, tmp_path: Path) -> None:
    text = tmp_path / "data" / "text.txt"
    text.write_text("some text\n")
    assert client.post(SEARCHES, json={"corpus": str(text)}).status_code == 202


def test_a_name_and_a_key_are_used_once(client: TestClient) -> None:
    key = {"Idempotency-Key": "k1"}
    first = client.post(SEARCHES, json={"name": "mine"}, headers=key)
    again = client.post(SEARCHES, json={"name": "mine"}, headers=key)
    assert (again.status_code, again.json()) == (202, first.json())
    assert client.post(SEARCHES, json={"name": "other"}, headers=key).status_code == 409
    taken = client.post(SEARCHES, json={"name": "mine"})
    assert (taken.status_code, "'mine'" in taken.json()["detail"]) == (409, True)
    assert len(client.get(SEARCHES).json()["items"]) == 1


@pytest.mark.databases("sqlite", "postgresql")
def test_searches_are_listed_with_their_figures(client: TestClient, many: str) -> None:
    for name in ("b", "a", "C_1"):
        client.post(SEARCHES, json={"name": name})
    listed = client.get(SEARCHES).json()
    assert_shape(Page[SearchShape], listed)
    assert [row["name"] for row in listed["items"]] == ["C_1", "a", "b", "many"]
    found = listed["items"][-1]
    assert found["num_episodes"] == found["num_episodes_finished"] == 30
    assert found["num_candidates"] == found["num_candidates_finished"] == 600
    best = client.get(f"{SEARCHES}/many").json()["summary"]["best"][0]
    assert found["best"] == {
        key: best[key] for key in ("architecture", "reward", "loss", "latency_ms")
    }
    assert listed["items"][0]["best"] is None
    for query, names in (
        ("sort=name", ["C_1", "a", "b", "many"]),
        ("sort=-name&limit=2", ["many", "b"]),
        ("status=queued&sort=name", ["C_1", "a", "b"]),
        ("status=queued&status=succeeded&q=A&sort=name", ["a", "many"]),
        ("q=_", ["C_1"]),
        ("owner_kind=cli", []),
        ("sort=finished_at", ["many", "b", "a", "C_1"]),
    ):
        items = client.get(f"{SEARCHES}?{query}").json()["items"]
        assert sorted(names) == sorted(row["name"] for row in items), query
        if "sort" in query and "finished" not in query:
            assert [row["name"] for row in items] == names


@pytest.mark.databases("sqlite", "postgresql")
def test_a_front_is_listed_with_its_hypervolume(client: TestClient, database: Database) -> None:
    """Which is that of its ranking, and of its summary."""
    client.post(SEARCHES, json={"name": "new", "goal": "front"})
    for name, goal in {"first": "front", "second": "front", "other": "reward"}.items():
        seed = len(name)
        demo_data.add_search(database, name, goal=goal, episodes=2, candidates_each=5, seed=seed)
    rows = {row["name"]: row for row in client.get(SEARCHES).json()["items"]}
    volumes = {name: row["hypervolume"] for name, row in rows.items()}
    assert (volumes["new"], volumes["other"], rows["other"]["goal"]) == (None, None, "reward")
    for name in ("first", "second"):
        ranked = client.get(f"{SEARCHES}/{name}/ranking").json()
        found = client.get(f"{SEARCHES}/{name}").json()
        assert ranked["hypervolume"] > 0
        for volume in (volumes[name], found["hypervolume"], found["summary"]["hypervolume"]):
            assert volume == pytest.approx(ranked["hypervolume"])
        page = client.get(f"{SEARCHES}/{name}/episodes?limit=1").json()
        cursor = page["next_cursor"]
        rest = client.get(f"{SEARCHES}/{name}/episodes?limit=1&cursor={cursor}").json()
        episodes = page["items"] + rest["items"]
        points = client.get(f"{SEARCHES}/{name}/points").json()["items"]
        by_then = [
            hypervolume(
                [(p["loss_relative"], p["latency_ratio"]) for p in points if p["episode"] <= last]
            )
            for last in (1, 2)
        ]
        assert [row["hypervolume"] for row in episodes] == pytest.approx(by_then)
        assert by_then[1] == pytest.approx(found["hypervolume"])
    assert volumes["first"] != volumes["second"]
    others = client.get(f"{SEARCHES}/other/episodes").json()["items"]
    assert [row["hypervolume"] for row in others] == [None, None]


def test_any_number_of_episodes_is_listed(client: TestClient, database: Database) -> None:
    """A number that no integer of a database holds hides neither its search nor the others.

    Requests have not held one since numbers have ends; rows from before that do.
    """
    asked = [10**15, 2]
    for number, episodes in enumerate(asked):
        spec = SearchSpec().to_json()
        spec["controller"]["episodes"] = episodes
        with database.write() as session:
            searches.create_search(session, spec, name=f"number{number}")
    answer = client.get(f"{SEARCHES}?sort=name")
    assert answer.status_code == 200
    assert [row["num_episodes"] for row in answer.json()["items"]] == asked


def test_a_search_is_read_with_its_summary(
    client: TestClient, database: Database, many: str
) -> None:
    found = client.get(f"{SEARCHES}/{many}").json()
    assert_shape(SearchDetail, found)
    with database.read() as session:
        record = searches.get_search(session, many)
    whole = summarise(record, DatabaseJournal(database).episodes(many))
    assert found["summary"] == json.loads(json.dumps({**whole, "best": whole["best"][:20]}))


def test_warnings_are_those_of_its_preparation(
    client: TestClient, database: Database, many: str
) -> None:
    found = client.get(f"{SEARCHES}/{many}").json()
    assert [found[name] for name in ("warnings", "space_size", "latency_profile")] == [
        [],
        None,
        None,
    ]
    space = SearchSpace.paper()
    facts = SearchFacts({}, {}, space.axes, 1, None, "p", "f", "t", 10.0, ["not so"])
    with database.write() as session:
        searches.set_search_facts(session, many, facts)
    found = client.get(f"{SEARCHES}/{many}").json()
    assert found["warnings"] == ["not so"]
    assert (found["space_size"], found["latency_profile"]) == (2400, "p")
    with database.write() as session:  # of a search from before there were any
        old = {name: value for name, value in facts.to_json().items() if name != "warnings"}
        session.execute(update(Search).where(Search.id == many).values(facts=old))
    assert client.get(f"{SEARCHES}/{many}").json()["warnings"] == []


def test_what_is_remembered_is_forgotten_with_the_next_event(
    client: TestClient, database: Database
) -> None:
    client.post(SEARCHES, json={"name": "mine"})
    assert client.get(f"{SEARCHES}/mine/points").json() == {"items": []}
    assert client.get(f"{SEARCHES}/mine").json()["summary"]["status"] == "queued"
    client.patch(f"{SEARCHES}/mine", json={"action": "pause"})
    assert client.get(f"{SEARCHES}/mine").json()["summary"]["status"] == "paused"


def test_a_search_is_paused_resumed_cancelled_and_deleted(client: TestClient) -> None:
    client.post(SEARCHES, json={"name": "mine"})
    for action, status in (("pause", "paused"), ("resume", "queued"), ("cancel", "cancelled")):
        answer = client.patch(f"{SEARCHES}/mine", json={"action": action})
        assert (answer.status_code, answer.json()["status"]) == (200, status)
        assert_shape(SearchDetail, answer.json())
    refused = client.patch(f"{SEARCHES}/mine", json={"action": "resume"})
    assert (refused.status_code, "is cancelled" in refused.json()["detail"]) == (409, True)
    assert client.patch(f"{SEARCHES}/mine", json={"action": "stop"}).status_code == 422
    assert client.delete(f"{SEARCHES}/mine").status_code == 204
    assert client.get(f"{SEARCHES}/mine").status_code == 404
    assert client.delete(f"{SEARCHES}/mine").status_code == 404


@pytest.mark.databases("sqlite", "postgresql")
def test_a_search_from_before_strategies_had_options_is_shown_and_resumed(
    client: TestClient, database: Database
) -> None:
    stored = SearchSpec.read({}, "stored").to_json()
    stored["controller"] = {
        **{"strategy": "controller", "variant": "once", "episodes": 15, "candidates": 20},
        **{"epsilon_start": 1.0, "epsilon_min": 0.05, "epsilon_decay": 0.05},
    }
    with database.write() as session:
        record = searches.create_search(session, stored, name="old", owner_kind="service")
        jobs.set_status(session, record.id, "paused")
    shown = client.get(f"{SEARCHES}/old").json()
    assert shown["spec"]["controller"]["strategy"] == "controller"
    assert client.patch(f"{SEARCHES}/old", json={"action": "resume"}).json()["status"] == "queued"
    again = client.post(SEARCHES, json={"controller": shown["spec"]["controller"]})
    options = again.json()["spec"]["controller"]["strategy"]
    assert (options["name"], options["variant"]) == ("controller", "once")


def test_an_earlier_answer_does_not_name_what_was_deleted(client: TestClient) -> None:
    first, again = (
        client.post(SEARCHES, json={}, headers={"Idempotency-Key": "k"}) for _ in range(2)
    )
    assert first.json()["id"] == again.json()["id"]
    assert client.delete(f"{SEARCHES}/{first.json()['id']}").status_code == 204
    after = client.post(SEARCHES, json={}, headers={"Idempotency-Key": "k"})
    assert after.status_code == 409
    assert "has been deleted since; send a new key" in after.json()["detail"]


def test_a_running_search_is_not_deleted(client: TestClient, database: Database) -> None:
    client.post(SEARCHES, json={"name": "mine"})
    with database.write() as session:
        row = searches.get_search(session, "mine")
        jobs.set_status(session, row.id, "running")
    assert client.delete(f"{SEARCHES}/mine").status_code == 409


@pytest.mark.parametrize(
    "path",
    ["", "/episodes", "/candidates", "/pareto", "/ranking", "/points", "/coverage", "/export"],
)
@pytest.mark.parametrize("reference", ["nobody", "%00", "a%00b"])
def test_an_unknown_search_is_not_found(client: TestClient, path: str, reference: str) -> None:
    answer = client.get(f"{SEARCHES}/{reference}{path}")
    assert (answer.status_code, answer.json()["status"]) == (404, 404)


@pytest.mark.databases("sqlite", "postgresql")
def test_episodes_tell_rewards_by_source(client: TestClient, database: Database, many: str) -> None:
    pages = [client.get(f"{SEARCHES}/many/episodes?limit=20").json()]
    pages.append(
        client.get(f"{SEARCHES}/many/episodes?limit=20&cursor={pages[0]['next_cursor']}").json()
    )
    assert pages[1]["next_cursor"] is None
    items = [row for page in pages for row in page["items"]]
    for page in pages:
        assert_shape(Page[EpisodeShape], page)
    assert [row["number"] for row in items] == list(range(1, 31))
    for row, episode in zip(items, DatabaseJournal(database).episodes(many), strict=True):
        rewards = [c.reward for c in episode.candidates if c.reward is not None]
        assert row["num_candidates"] == row["num_finished"] == 20
        assert row["best_reward"] == max(rewards)
        assert row["mean_reward"] == pytest.approx(sum(rewards) / len(rewards))
        for source, figures in row["by_source"].items():
            own = [c.reward for c in episode.candidates if c.source == source]
            known = [reward for reward in own if reward is not None]
            assert (figures["count"], figures["best_reward"]) == (len(own), max(known))


@pytest.mark.databases("sqlite", "postgresql")
def test_candidates_are_filtered_sorted_and_paged(client: TestClient, many: str) -> None:
    path = f"{SEARCHES}/many/candidates"
    query = "layers=3&layers=4&status=succeeded&max_latency_ms=3&sort=latency_ms&limit=7"
    page = client.get(f"{path}?{query}").json()
    assert_shape(Page[CandidateShape], page)
    items = page["items"]
    while page["next_cursor"]:
        page = client.get(f"{path}?{query}&cursor={page['next_cursor']}").json()
        items += page["items"]
    everything = json.loads(client.get(f"{SEARCHES}/many/export?format=json").content)
    wanted = [
        row
        for row in everything
        if row["layers"] in (3, 4) and row["status"] == "succeeded" and row["latency_ms"] <= 3
    ]
    assert len(wanted) > 14
    assert items == sorted(wanted, key=lambda row: (row["latency_ms"], row["id"]))
    other = client.get(f"{path}?sort=latency_ms").json()["next_cursor"]
    assert client.get(f"{path}?{query}&cursor={other}").status_code == 422


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ("limit=0", "query.limit"),
        ("sort=colour", "query.sort"),
        ("min_rewrad=1", "query.min_rewrad"),
        ("min_reward=nan", "query.min_reward"),
        ("layers=99999999999999999999", "query.layers"),
        ("status=done", "query.status"),
        ("architecture=%00", "query.architecture"),
        ("activation=%00", "query.activation"),
    ],
)
def test_a_wrong_parameter_is_told(client: TestClient, many: str, query: str, where: str) -> None:
    answer = client.get(f"{SEARCHES}/many/candidates?{query}")
    assert answer.status_code == 422
    assert [problem["where"] for problem in answer.json()["errors"]] == [where]


def test_one_candidate(client: TestClient, many: str) -> None:
    row = client.get(f"{SEARCHES}/many/candidates?limit=1").json()["items"][0]
    found = client.get(f"/api/v1/candidates/{row['id']}").json()
    assert_shape(CandidateDetail, found)
    assert found == {**row, "attempts": [], "curve": []}
    for unknown in ("nobody", "%00"):
        assert client.get(f"/api/v1/candidates/{unknown}").status_code == 404


def test_ranking_anew_is_that_of_the_candidates(
    client: TestClient, database: Database, many: str
) -> None:
    candidates = [c for e in DatabaseJournal(database).episodes(many) for c in e.candidates]
    found = client.get(f"{SEARCHES}/many/ranking?alpha=-1.5&beta=0.3&loss=output&limit=9").json()
    assert_shape(Ranking, found)
    assert (found["alpha"], found["beta"], found["loss"]) == (-1.5, 0.3, "output")
    function = RewardFunction("output", -1.5, 0.3)
    wanted = ranking(function.rescored(c) for c in candidates)[:9]
    stored = [c.index for c in ranking(candidates)]
    assert [(row["architecture"], row["reward"]) for row in found["items"]] == [
        (str(c.architecture), c.reward) for c in wanted
    ]
    assert [row["stored_rank"] for row in found["items"]] == [
        stored.index(c.index) + 1 for c in wanted
    ]
    assert [row["loss_start"] for row in found["items"]] == [c.loss_start for c in wanted]
    assert found["warning"] is None
    mean = client.get(f"{SEARCHES}/many/ranking?loss=mean").json()
    assert "mean cannot rank students of different depth" in mean["warning"]
    own = client.get(f"{SEARCHES}/many/ranking").json()
    assert all(row["rank"] == row["stored_rank"] for row in own["items"])
    for wrong in ("alpha=1", "alpha=-1e300", "beta=0", "beta=inf", "loss=x", "limit=0"):
        assert client.get(f"{SEARCHES}/many/ranking?{wrong}").status_code == 422


def test_a_ranking_within_a_latency_has_the_lowest_loss_first(
    client: TestClient, many: str
) -> None:
    path = f"{SEARCHES}/many/ranking?goal=limit&limit=1000"
    everything = client.get(path).json()
    assert_shape(Ranking, everything)
    assert (everything["alpha"], everything["max_latency_ratio"]) == (0, None)
    latencies = sorted(row["latency_ratio"] for row in everything["items"])
    middle = latencies[len(latencies) // 2]
    found = client.get(f"{path}&max_latency_ratio={middle}").json()
    assert found["max_latency_ratio"] == middle
    assert [row["architecture"] for row in found["items"]] == [
        row["architecture"] for row in everything["items"] if row["latency_ratio"] <= middle
    ]
    losses = [row["loss"] for row in found["items"]]
    assert losses == sorted(losses)


def test_a_ranking_by_the_front_is_the_front(client: TestClient, many: str) -> None:
    found = client.get(f"{SEARCHES}/many/ranking?goal=front").json()
    assert_shape(Ranking, found)
    front = client.get(f"{SEARCHES}/many/pareto").json()["items"]
    assert [row["architecture"] for row in found["items"]] == [row["architecture"] for row in front]
    lost = [row["contribution"] for row in found["items"]]
    assert 0 < sum(lost) <= found["hypervolume"]
    assert min(lost) >= 0


def test_a_search_is_ranked_by_its_own_goal(client: TestClient) -> None:
    limits = {"max_latency_ratio": 0.4}
    client.post(SEARCHES, json={"name": "within", "goal": "limit", "limits": limits})
    client.post(SEARCHES, json={"name": "every", "goal": "front"})
    own = client.get(f"{SEARCHES}/within/ranking").json()
    assert (own["goal"], own["alpha"], own["max_latency_ratio"]) == ("limit", 0, 0.4)
    assert client.get(f"{SEARCHES}/every/ranking").json()["hypervolume"] == 0
    anew = client.get(f"{SEARCHES}/within/ranking?goal=reward").json()
    assert (anew["goal"], anew["alpha"]) == ("reward", pytest.approx(-0.152, abs=5e-4))
    for query, said in {
        "alpha=-1": "alpha -1 is of goal reward, and this ranking is of goal limit; add",
        "goal=front&beta=0.5": "beta 0.5 is of goal reward, and this ranking is of goal front",
        "goal=reward&max_latency_ratio=0.2": "add goal=limit, or leave max_latency_ratio out",
    }.items():
        refused = client.get(f"{SEARCHES}/within/ranking?{query}")
        assert refused.status_code == 422
        assert said in refused.json()["detail"]
    assert client.get(f"{SEARCHES}/within/ranking?goal=best").status_code == 422


def test_charts(client: TestClient, database: Database, many: str) -> None:
    front = client.get(f"{SEARCHES}/many/pareto").json()
    assert_shape(Candidates, front)
    ranked = ranking(c for e in DatabaseJournal(database).episodes(many) for c in e.candidates)
    figures = [(c.losses.relative, c.latency_ms or 0.0) for c in ranked if c.losses]
    assert [row["id"] for row in front["items"]] == [ranked[i].id for i in pareto_front(figures)]
    points = client.get(f"{SEARCHES}/many/points?limit=50").json()
    assert_shape(Points, points)
    assert len(points["items"]) == 50
    assert {row["id"] for row in front["items"]} <= {row["id"] for row in points["items"]}
    function = RewardFunction.from_spec(RewardSpec())
    for row in points["items"]:
        foreseen = row["predicted_reward"]
        assert (row["predicted_loss"] is None) == (foreseen is None)
        if foreseen is not None:
            perfect = function.of_loss(0.0, row["latency_ratio"])
            assert (1 - row["predicted_loss"]) * perfect == pytest.approx(foreseen)
    for row in (*front["items"], *points["items"]):
        start = benchmark_start(Architecture.parse(row["architecture"]))
        assert row["loss_start"] == pytest.approx(start)
    covered = client.get(f"{SEARCHES}/many/coverage").json()
    assert_shape(CoverageShape, covered)
    assert len(covered["pairs"]) == 10
    for pair in covered["pairs"]:
        assert sum(map(sum, pair["counts"])) == 600


def test_how_sure_the_figures_are(client: TestClient, database: Database) -> None:
    with database.write() as session:
        latencies.save_latency_table(session, demo_data.latency_table())
    search_id = demo_data.add_search(database, "sure", episodes=3, candidates_each=8)
    path = f"{SEARCHES}/{search_id}"
    before = client.get(f"{path}/analysis").json()
    assert_shape(AnalysisShape, before)
    assert before["noise"] is before["within_noise"] is before["chance"] is None
    assert before["sentences"][0].startswith("Noise is not known")
    assert {row["like_best"] for row in client.get(f"{path}/ranking").json()["items"]} == {None}

    with database.write() as session:  # no event tells of what others train
        demo_data.add_second_seed(session)
    found = client.get(f"{path}/analysis").json()
    assert found["noise"]["dof"] == found["noise"]["num_states"] > 0
    with database.write() as session:
        searches.set_search_facts(session, search_id, demo_data.search_facts())
        jobs.set_status(session, search_id, "running")
    found = client.get(f"{path}/analysis").json()
    assert_shape(AnalysisShape, found)
    assert found["chance"]["num_allowed"] == 2400
    assert [p["episode"] for p in found["predictions"]] == sorted(
        {p["episode"] for p in found["predictions"]}
    )
    ranked = client.get(f"{path}/ranking").json()["items"]
    alike = [row["architecture"] for row in ranked if row["like_best"]]
    assert alike == [ranked[0]["architecture"], *found["within_noise"]]
    front = client.get(f"{path}/ranking?goal=front").json()["items"]
    assert {row["like_best"] for row in front} == {None}


def test_with_goal_front_what_noise_cannot_tell_from_it_is_named(
    client: TestClient, database: Database
) -> None:
    search_id = demo_data.add_search(database, "far", episodes=6, goal="front")
    with database.write() as session:
        demo_data.add_second_seed(session)
    found = client.get(f"{SEARCHES}/{search_id}/analysis").json()
    assert_shape(AnalysisShape, found)
    front = client.get(f"{SEARCHES}/{search_id}/pareto").json()["items"]
    points = client.get(f"{SEARCHES}/{search_id}/points").json()["items"]
    near = [
        point for name in found["within_noise"] for point in points if point["architecture"] == name
    ]
    assert 0 < len(near) < len(points) - len(front)
    assert [p["latency_ms"] for p in near] == sorted(p["latency_ms"] for p in near)
    assert not {p["architecture"] for p in near} & {c["architecture"] for c in front}
    assert "from those of the front" in found["sentences"][0] + found["sentences"][1]


def test_exports_say_the_same(client: TestClient, many: str) -> None:
    answers = {
        kind: client.get(f"{SEARCHES}/many/export?format={kind}")
        for kind in ("csv", "json", "parquet")
    }
    for kind, answer in answers.items():
        assert answer.status_code == 200
        assert f'filename="kdnas-{many}.{kind}"' in answer.headers["content-disposition"]
    as_json = answers["json"].json()
    assert_shape(list[CandidateShape], as_json)
    assert [(row["episode"], row["position"]) for row in as_json] == [
        (1 + i // 20, i % 20) for i in range(600)
    ]
    as_csv = list(csv.DictReader(io.StringIO(answers["csv"].text)))
    assert list(as_csv[0]) == list(FIELDS)
    assert [row["id"] for row in as_csv] == [row["id"] for row in as_json]
    assert [row["reward"] for row in as_csv] == [
        "" if row["reward"] is None else repr(row["reward"]) for row in as_json
    ]
    assert [row["loss_start"] for row in as_csv] == [
        "" if row["loss_start"] is None else repr(row["loss_start"]) for row in as_json
    ]
    table = pq.read_table(io.BytesIO(answers["parquet"].content)).to_pylist()
    for column in ("reward", "loss_start"):
        assert [row[column] for row in table] == [row[column] for row in as_json]
    assert client.get(f"{SEARCHES}/many/export?format=xlsx").status_code == 422


def test_what_rungs_stopped_is_told_everywhere(client: TestClient, database: Database) -> None:
    search_id = client.post(SEARCHES, json={"name": "mine"}).json()["id"]
    journal = DatabaseJournal(database)
    whole, stopped = journal.begin_episode(
        search_id, 1, None, None, None, new_candidates()
    ).candidates
    journal.start_attempt([whole.id, stopped.id], "worker")
    reading = Reading(5, LOSSES)
    done = replace(result_of(whole.id, SMALL), readings=(reading,))
    journal.finish_candidate(whole.id, CONTEXT, done, 0.5, None)
    ended = replace(result_of(stopped.id, LARGE), losses=None, steps=5, readings=(reading,))
    journal.finish_candidate(stopped.id, CONTEXT, ended, None, "stopped after 5 of 20 steps")

    told = {
        "step": 5,
        **{f"loss_{name}": value for name, value in asdict(LOSSES).items()},
    }
    (row,) = client.get(f"{SEARCHES}/mine/candidates?status=stopped").json()["items"]
    assert_shape(CandidateShape, row)
    assert (row["id"], row["reward"], row["loss_relative"]) == (stopped.id, None, None)
    assert (row["num_steps"], row["note"]) == (5, "stopped after 5 of 20 steps")
    assert row["readings"] == [told]
    detail = client.get(f"/api/v1/candidates/{stopped.id}").json()
    assert_shape(CandidateDetail, detail)
    assert {key: detail[key] for key in row} == row
    assert [attempt["outcome"] for attempt in detail["attempts"]] == ["stopped"]
    found = client.get(f"{SEARCHES}/mine").json()
    assert found["num_candidates_finished"] == 2
    assert (found["summary"]["stopped"], found["summary"]["explored"]) == (1, 2)
    assert found["summary"]["steps_saved"] == pytest.approx(1 - 25 / 40)
    for path in ("ranking", "points", "pareto"):
        (only,) = client.get(f"{SEARCHES}/mine/{path}").json()["items"]
        assert only["architecture"] == str(SMALL)
    with database.read() as session:
        all_events = events.events_since(session, job_id=search_id)
    (event,) = (e for e in all_events if e.payload.get("candidate") == stopped.id)
    assert (event.payload["status"], event.payload["num_steps"]) == ("stopped", 5)
    assert in_words(event) == f"{LARGE} stopped after 5 of 20 steps"

    exports = {k: client.get(f"{SEARCHES}/mine/export?format={k}") for k in ("csv", "parquet")}
    as_json = client.get(f"{SEARCHES}/mine/export?format=json").json()
    assert [r["readings"] for r in as_json] == [[told], [told]]
    as_csv = list(csv.DictReader(io.StringIO(exports["csv"].text)))
    assert [json.loads(r["readings"]) for r in as_csv] == [[told], [told]]
    table = pq.read_table(io.BytesIO(exports["parquet"].content)).to_pylist()
    assert [r["readings"] for r in table] == [[told], [told]]
    assert [r["num_steps"] for r in table] == [20, 5]


def test_an_empty_search_is_exported(client: TestClient) -> None:
    client.post(SEARCHES, json={"name": "mine"})
    assert client.get(f"{SEARCHES}/mine/export?format=json").json() == []
    assert client.get(f"{SEARCHES}/mine/export").text == ",".join(FIELDS) + "\r\n"
    parquet = client.get(f"{SEARCHES}/mine/export?format=parquet").content
    assert pq.read_table(io.BytesIO(parquet)).num_rows == 0
