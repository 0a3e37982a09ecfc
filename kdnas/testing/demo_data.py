"""A database as it looks after a week of use: searches, distillations, evaluations and latency.

The numbers follow a made-up landscape with the shape of real ones. They serve the tests of the
dashboard and its screenshots, and nothing else.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from kdnas.architecture import Architecture
from kdnas.db import models
from kdnas.db.engine import Database, Session
from kdnas.db.exploration import candidates, losses
from kdnas.db.records import EvaluationRecord, HeldOutReading
from kdnas.db.repository import (
    distillations,
    evaluations,
    events,
    jobs,
    latencies,
    searches,
    sweeps,
)
from kdnas.db.repository.evaluations import NewEvaluation
from kdnas.evaluation.model_figures import ModelFigures
from kdnas.evaluation.results import TaskResult
from kdnas.evaluation.settings import published_settings
from kdnas.evaluation.tasks.registry import find_task
from kdnas.models.cost import EmbeddingShape, count_parameters
from kdnas.records import (
    CurvePoint,
    LatencyEntry,
    LatencyProfile,
    LatencyTable,
    Losses,
    MiniKDResult,
    NewCandidate,
    Proposal,
    Reading,
    SearchFacts,
    SweepFacts,
)
from kdnas.search.reward import RewardFunction
from kdnas.search_space import AXES, SearchSpace
from kdnas.specs.distillation import DistillationSpec
from kdnas.specs.search import Goal, RewardSpec, SearchSpec
from kdnas.specs.sweep import SweepSpec
from kdnas.testing import demo_tasks

CONTEXT = "made-up"
TEACHER_NAME = "bert-base-uncased"
TEACHER = Architecture(12, 12, 768, 3072, "gelu")
WEEK_BEGAN = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class DemoIds:
    """What :func:`fill` wrote: ids of searches and distillations by what they are for."""

    finished: str
    running: str
    random: str
    queued: str
    failed: str
    student: str
    training: str
    latency_profile: str
    evaluation: str
    sweep: str
    task_distillation: str


def fill(database: Database, *, now: datetime | None = None) -> DemoIds:
    """Fill an empty, migrated database; ``now`` is when the running search is looked at."""
    now = now or datetime.now(UTC)
    with database.write() as session:
        profile = latencies.save_latency_table(session, latency_table())
    finished = add_search(
        database, "distil-bert-week-09", episodes=15, began=now - timedelta(days=2)
    )
    with database.write() as session:
        searches.set_search_facts(session, finished, search_facts())
        add_second_seed(session)
    chance = add_search(
        database,
        "random-baseline",
        episodes=12,
        strategy="random",
        seed=3,
        began=now - timedelta(days=1, hours=6),
    )
    running = add_search(
        database,
        "under-8-ms",
        episodes=15,
        finished_episodes=8,
        seed=7,
        began=now - timedelta(minutes=55),
    )
    with database.write() as session:
        failed = searches.create_search(session, spec("gpu-trial"), name="gpu-trial")
        jobs.set_status(session, failed.id, "running")
        jobs.set_status(
            session,
            failed.id,
            "failed",
            "device cuda was asked for, but this machine has no GPU; use device auto or cpu",
        )
        queued = searches.create_search(
            session, spec("wide-students"), name="wide-students", owner_kind="service"
        )
    student = add_distillation(database, "student-5-ms", "4,8,384,1024,gelu", steps=4000)
    training = add_distillation(
        database, "student-8-ms", "6,6,576,1536,gelu", steps=4000, until=2360
    )
    add_evaluations(database, TEACHER_NAME, {"SST-2": 0.925, "STS-B": 0.886, "RTE": 0.668})
    evaluation = add_evaluations(
        database,
        "/data/models/student-5-ms",
        {"SST-2": 0.901, "STS-B": 0.852},
        distillation_id=student,
        unfinished="RTE",
    )
    sweep = add_sweep(database, "starts-of-240")
    for_task = demo_tasks.add_task_distillation(database, "rte-students", failed="pkd")
    return DemoIds(
        finished,
        running,
        chance,
        queued.id,
        failed.id,
        student,
        training,
        profile,
        evaluation,
        sweep,
        for_task,
    )


def spec(name: str, goal: Goal = "reward", **controller: Any) -> dict[str, Any]:
    """A request for a search in the paper's space, as plain JSON."""
    asked = {
        "name": name,
        "teacher": "bert-base-uncased",
        "corpus": "hub:wikimedia/wikipedia",
        "space": "paper",
        "goal": goal,
        "limits": {"max_latency_ratio": 1.0} if goal == "limit" else {},
        "controller": controller,
    }
    return SearchSpec.model_validate(asked).model_dump(mode="json")


def add_search(
    database: Database,
    name: str,
    *,
    episodes: int,
    finished_episodes: int | None = None,
    strategy: str = "controller",
    goal: Goal = "reward",
    candidates_each: int = 20,
    seed: int = 1,
    began: datetime = WEEK_BEGAN,
    search_id: str | None = None,
) -> str:
    """Write a search, finished or in the middle of an episode; returns its id.

    With ``search_id`` that search, which is queued, is the one.
    """
    if search_id is None:
        asked = spec(name, goal, episodes=episodes, candidates=candidates_each, strategy=strategy)
        search_id = _running_search(database, name, asked)
    else:
        with database.write() as session:
            jobs.set_status(session, search_id, "running")
    whole = episodes if finished_episodes is None else finished_episodes
    picks = _picks(episodes, candidates_each, strategy, random.Random(seed))
    for number in range(1, whole + 1):
        epsilon = max(0.05, 1 - 0.05 * (number - 1)) if strategy == "controller" else None
        add_episode(database, search_id, number, picks[number - 1], epsilon=epsilon, goal=goal)
    if whole < episodes:
        epsilon, last = 1 - 0.05 * whole, picks[whole]
        add_episode(database, search_id, whole + 1, last, epsilon=epsilon, finished=11, goal=goal)
    else:
        with database.write() as session:
            jobs.set_status(session, search_id, "succeeded")
    _spread_times(database, search_id, began)
    return search_id


def add_episode(
    database: Database,
    search_id: str,
    number: int,
    picks: Sequence[tuple[int, str, float | None]],
    *,
    epsilon: float | None = None,
    finished: int | None = None,
    goal: Goal = "reward",
) -> list[str]:
    """Write an episode, whole or up to ``finished`` candidates; returns the candidates' ids."""
    with database.write() as session:
        episode = candidates.begin_episode(
            session, search_id, number, epsilon, None, None, [_proposed(*pick) for pick in picks]
        )
        ids = [candidate.id for candidate in episode.candidates]
        for start in range(0, len(ids) if finished is None else finished, 4):
            worker = f"node-{start // 4 % 2 + 1}/0"
            candidates.start_attempts(session, ids[start : start + 4], worker)
        for candidate in episode.candidates[:finished]:
            finish(session, candidate.id, candidate.index, goal)
        if finished is None:
            loss = 0.02 + 0.05 * math.exp(-number / 4)
            candidates.end_episode(session, search_id, number, loss, b"made up")
    return ids


def finish(session: Session, candidate_id: str, index: int, goal: Goal = "reward") -> None:
    """Finish a running candidate with the landscape's losses; one state in 97 diverges."""
    architecture = _states()[index]
    losses = None if index % 97 == 13 else landscape(architecture)
    if losses is None:
        why = "the loss is not finite at step 212"
        result = MiniKDResult(candidate_id, architecture, None, why, 212, 5.1)
        value, note = None, None
    else:
        curve = tuple(
            CurvePoint(
                step, losses.training * (1 + 3 * math.exp(-step / 120)), 8e-4 * (1 - step / 601)
            )
            for step in range(20, 601, 20)
        )
        start = 0.4 + 0.6 * losses.relative
        result = MiniKDResult(candidate_id, architecture, losses, None, 600, 14.2, curve, start)
        reward = RewardFunction.from_spec(RewardSpec().under(goal))
        value, note = reward(losses, latency_ms(architecture) / latency_ms(TEACHER))
    candidates.finish_candidate(session, candidate_id, CONTEXT, result, value, note)


def add_second_seed(session: Session) -> None:
    """Train forty states of the landscape as all others, but with another seed: that is noise."""
    rng = random.Random(0)
    for seed, name in enumerate((CONTEXT, f"{CONTEXT}, another seed")):
        content = {"teacher": "made-up-teacher", "proxy": {"steps": 600, "seed": seed}}
        row = session.get(models.MiniKDContext, name) or models.MiniKDContext(fingerprint=name)
        row.content = content
        session.add(row)
    for architecture in _states()[::60]:
        found = landscape(architecture)
        moved = replace(found, relative=found.relative + rng.gauss(0, 0.004))
        result = MiniKDResult("", architecture, moved, None, 600, 14.2)
        losses.add_losses(session, name, result, moved)


def add_sweep(database: Database, name: str, *, each: int = 10) -> str:
    """Write a finished sweep of one state in so many, read at the start and after 60 steps.

    Args:
        database: with the latency table.
        name: of the sweep.
        each: of so many states one is read.
    """
    drawn = list(range(0, len(_states()), each))
    asked = SweepSpec.model_validate(
        {"name": name, "teacher": TEACHER_NAME, "steps": (0, 60), "states": len(drawn)}
    )
    chance, known = random.Random(name), asdict(search_facts())
    shared = {key: known[key] for key in known.keys() & {one.name for one in fields(SweepFacts)}}
    with database.write() as session:
        row = sweeps.create_sweep(session, asked.to_json(), name=name, owner_kind="service")
        context = {"teacher": "made-up-teacher", "proxy": {"steps": 60, "seed": 0}}
        facts = SweepFacts(**shared, num_states=len(_states()), drawn=drawn, context=context)
        sweeps.set_sweep_facts(session, row.id, facts)
        jobs.set_status(session, row.id, "running")
        for index in drawn:
            end = landscape(_states()[index])
            start = 0.15 + 0.8 * end.relative + chance.gauss(0, 0.01)
            readings = (Reading(0, replace(end, relative=start)), Reading(60, end))
            result = MiniKDResult(
                str(index), _states()[index], end, None, 60, 4.2, readings=readings
            )
            sweeps.add_state(session, row.id, 0, index, result, None)
        jobs.note_progress(session, row.id, len(drawn), len(drawn))
        jobs.set_status(session, row.id, "succeeded")
    return row.id


def add_distillation(
    database: Database, name: str, architecture: str, *, steps: int, until: int | None = None
) -> str:
    """Write a distillation with its curve, finished or at step ``until``; returns its id."""
    asked = DistillationSpec.model_validate(
        {
            "name": name,
            "architecture": architecture,
            "teacher": "bert-base-uncased",
            "training": {"steps": steps},
        }
    )
    with database.write() as session:
        row = distillations.create_distillation(
            session, asked.model_dump(mode="json"), asked.arch, name=name, owner_kind="service"
        )
    train(database, row.id, name, steps=steps, until=until)
    return row.id


def train(
    database: Database, distillation_id: str, name: str, *, steps: int, until: int | None = None
) -> None:
    """Give a queued distillation its curve, and its student unless it is at step ``until``.

    Of 0 steps there is no curve, and a student as it starts.
    """
    chance = random.Random(name)
    end = steps if until is None else until
    points = [
        CurvePoint(
            step, 0.9 * (step / 20) ** -0.32 * chance.uniform(0.96, 1.04), _rate(step, steps)
        )
        for step in range(20, end + 1, 20)
    ]
    readings = [HeldOutReading(0, Losses(1.4, 1.2, 0.86, 0.9))]
    readings += [
        HeldOutReading(step, Losses(1.1 * f, 0.9 * f, 0.62 * f + 0.08, 0.55 * f + 0.1))
        for step in range(200, end + 1, 200)
        for f in [0.9 * (step / 200) ** -0.28]
    ]
    if steps == 0 and until is None:
        readings = [HeldOutReading(0, Losses(1.3, 1.2, 1.04, 1.0))]
    with database.write() as session:
        jobs.set_status(session, distillation_id, "running")
        distillations.set_distillation_progress(
            session, distillation_id, end, steps, points, readings
        )
        if until is None:
            distillations.set_distillation_result(
                session,
                distillation_id,
                metrics={"relative": readings[-1].losses.relative, "output": 0.31},
                output_path=f"/data/models/{name}",
            )
            jobs.set_status(session, distillation_id, "succeeded")


def add_evaluations(
    database: Database,
    model: str,
    scores: Mapping[str, float],
    *,
    distillation_id: str | None = None,
    unfinished: str | None = None,
) -> str:
    """Write evaluations of a model over GLUE with three seeds; returns the id of the first.

    Args:
        database: empty or not.
        model: its name.
        scores: task → about its score.
        distillation_id: of the distillation that made the model.
        unfinished: a task whose first seed is at work, with the others behind it.
    """
    tasks = [*scores, *([unfinished] if unfinished else [])]
    wanted = [NewEvaluation("glue", task, seed, {}) for task in tasks for seed in range(3)]
    chance = random.Random(model)
    with database.write() as session:
        ids = evaluations.create_evaluations(
            session, wanted, model=model, distillation_id=distillation_id
        )
        for row_id, pair in zip(ids, wanted, strict=True):
            if pair.task in scores:
                score(session, row_id, model, scores[pair.task] + chance.gauss(0, 0.004))
            elif pair.seed == 0:
                jobs.set_status(session, row_id, "running")
                evaluations.note_evaluation_progress(session, row_id, "training", 120, 240, 0.61)
    return ids[0]


def score(
    session: Session,
    evaluation_id: str,
    model: str,
    value: float,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Finish a queued evaluation with a score; ``settings`` take the place of published ones."""
    found = evaluations.get_evaluation(session, evaluation_id)
    about = {"key": found.id, "model": {"ref": model}, "data": found.task, "settings": {}}
    evaluations.note_prepared(session, found.id, about)
    jobs.set_status(session, found.id, "running")
    result = _task_result(found, value)
    result = replace(result, settings=replace(result.settings, **(settings or {})))
    evaluations.set_figures(session, found.id, result.to_json())


FIGURES = {
    True: ModelFigures(108_891_648, 437_951_328, "pytorch", 41.6, "cpu:AMD EPYC", 32, 1),
    False: ModelFigures(24_310_272, 97_265_080, "pytorch", 4.9, "cpu:AMD EPYC", 32, 1),
}
"""Size and speed of the teacher, and of the student."""


def _task_result(pair: EvaluationRecord, score: float) -> TaskResult:
    task = find_task(pair.task)
    is_official = task.name != "RTE"
    return TaskResult(
        task=task.name,
        suite="glue",
        seed=pair.seed,
        settings=published_settings(task),
        metrics={"dev": {task.main_metric: score}},
        main=score,
        seconds=214.0,
        steps=240,
        train_examples=2490,
        official_split=is_official,
        notes=() if is_official else ("not the official split: there is no training part",),
        figures=FIGURES[pair.distillation_id is None],
    )


def landscape(architecture: Architecture) -> Losses:
    """Made-up losses: better with depth and width, worse with ReLU, and a little noise."""
    depth, width = architecture.layers / 12, architecture.hidden / 768
    inner = architecture.intermediate / 3072
    noise = random.Random(str(architecture)).gauss(0, 0.012)
    gap = 0.11 + 0.34 * math.exp(-3.2 * depth) + 0.3 * math.exp(-2.6 * width)
    gap += 0.12 * math.exp(-3 * inner) + 0.02 * (architecture.activation == "relu")
    gap += 0.025 * abs(math.log2(architecture.head_size / 64))
    relative = min(0.97, max(0.05, gap + noise))
    return Losses(
        training=1.9 * relative, mean=1.6 * relative, relative=relative, output=0.92 * relative
    )


def latency_ms(architecture: Architecture) -> float:
    """Made-up milliseconds of one sequence on one core."""
    a = architecture
    work = 4 * a.hidden**2 + 2 * a.hidden * a.intermediate
    return 0.45 + a.layers * (0.14 + 0.012 * a.heads + work * 2.9e-7) + 3e-4 * a.hidden


REWARD = RewardFunction.from_spec(RewardSpec())


@cache
def _states() -> tuple[Architecture, ...]:
    return SearchSpace.paper().states


def _reward_of(architecture: Architecture) -> float:
    return REWARD(landscape(architecture), latency_ms(architecture) / latency_ms(TEACHER)).reward


def _picks(
    episodes: int, each: int, strategy: str, chance: random.Random
) -> list[list[tuple[int, str, float | None]]]:
    """What each episode tries: at random, or more and more among the good ones."""
    states = _states()
    order = sorted(range(len(states)), key=lambda i: -_reward_of(states[i]))
    left = set(order)
    picks: list[list[tuple[int, str, float | None]]] = []
    for number in range(1, episodes + 1):
        epsilon = max(0.05, 1 - 0.05 * (number - 1)) if strategy == "controller" else 1.0
        episode: list[tuple[int, str, float | None]] = []
        pool = [i for i in order if i in left][: max(60, len(states) // (1 + number))]
        for _ in range(each):
            if strategy == "controller" and number > 1 and chance.random() > epsilon:
                index = chance.choice([i for i in pool if i in left])
                guess = _reward_of(states[index]) + chance.gauss(0, 0.12 / number)
                episode.append((index, "controller", guess))
            else:
                index = chance.choice(sorted(left))
                guess_or_none = None
                if number > 1 and strategy == "controller":
                    guess_or_none = _reward_of(states[index]) + chance.gauss(0, 0.3 / number)
                episode.append((index, "random", guess_or_none))
            left.discard(index)
        picks.append(episode)
    return picks


def _proposed(index: int, source: str, predicted: float | None) -> NewCandidate:
    architecture = _states()[index]
    return NewCandidate(
        proposal=Proposal(index, source, predicted),
        architecture=architecture,
        latency_ms=latency_ms(architecture),
        latency_ratio=latency_ms(architecture) / latency_ms(TEACHER),
        params_millions=_params(architecture),
    )


def _params(architecture: Architecture) -> float:
    return count_parameters(architecture, EmbeddingShape(30522)) / 1e6


def _running_search(database: Database, name: str, asked: dict[str, Any]) -> str:
    with database.write() as session:
        row = searches.create_search(session, asked, name=name, owner_kind="service")
        jobs.set_status(session, row.id, "running")
    return row.id


def _rate(step: int, steps: int) -> float:
    warmup = 0.05 * steps
    return 8e-4 * (step / warmup if step < warmup else (steps - step) / (steps - warmup))


def _spread_times(database: Database, search_id: str, began: datetime) -> None:
    """Date a search's episodes six and a half minutes apart, as trainings take their time."""
    with database.write() as session:
        row = session.get_one(models.Search, search_id)
        row.created_at = row.started_at = began
        number, length = 1, timedelta(minutes=6, seconds=30)
        while (episode := session.get(models.Episode, (search_id, number))) is not None:
            episode.started_at = began + length * (number - 1)
            if episode.finished_at is not None:
                episode.finished_at = began + length * number
            number += 1
        if row.finished_at is not None:
            row.finished_at = began + length * (number - 1)
        at = 0
        for event in events.events_since(session, job_id=search_id, limit=100_000):
            at = event.payload.get("episode", at)
            past = at if event.type in ("episode_finished", "search_status") and at else at - 1
            position = event.payload.get("position")
            within = length * (position + 1) / 21 if position is not None else timedelta()
            stored = session.get_one(models.Event, event.id)
            stored.created_at = began + length * max(0, past) + within


def search_facts() -> SearchFacts:
    """What preparing a search in the paper's space has found out."""
    table = latency_table()
    return SearchFacts(
        teacher={axis: getattr(TEACHER, axis) for axis in AXES},
        embedding=asdict(EmbeddingShape(30522)),
        axes={axis: list(values) for axis, values in SearchSpace.paper().axes.items()},
        head_multiple=1,
        allowed=None,
        latency_profile=table.profile.fingerprint,
        family=table.family,
        teacher_fingerprint=table.teacher_fingerprint,
        teacher_ms=table.teacher_ms,
    )


def latency_table() -> LatencyTable:
    """Made-up latencies of every state of the space."""
    profile = LatencyProfile("cpu:AMD EPYC 9354", "pytorch-eager", 1, "float32", 32, "node-1")
    entries = {
        str(a): LatencyEntry(a, latency_ms(a), 0.02 * latency_ms(a), i % 40 == 0)
        for i, a in enumerate(_states())
    }
    quality = {"median_error": 0.021, "p90_error": 0.058, "spearman": 0.996, "num_checked": 60}
    return LatencyTable(
        profile, "bert-512", "made-up-teacher", latency_ms(TEACHER), entries, quality, 212.0
    )
