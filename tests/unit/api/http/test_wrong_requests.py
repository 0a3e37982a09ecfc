"""Every field of every request, filled wrongly in many ways: told plainly, nothing changed."""

from __future__ import annotations

import copy
import itertools
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from api.http.app import create_app
from kdnas.db.engine import Database
from kdnas.db.migrate import open_database
from kdnas.settings import Settings
from kdnas.specs.wording import shown

HERE = "http://127.0.0.1:8000"

REQUESTS: Mapping[str, dict[str, Any]] = {
    "searches": {},
    "sweeps": {},
    "distillations": {"architecture": "3,12,288,768,gelu"},
    "task-distillations": {"task": "rte"},
    "evaluations": {"suite": "glue", "model": "minilm", "tasks": ["RTE"], "seeds": [0]},
    "pipelines": {"evaluation": {"suite": "glue"}},
    "latency-tables": {},
}
"""Paths → the least that is right."""

WRONG: tuple[Any, ...] = (
    *("no such thing", "", "a\0b", "\ud800", "x" * 3000, "geluu", "../x", "[1]"),
    *(-1, 0, 10**30, 1e308, float("nan"), -0.5, 1.5),
    *(None, True, [], [None], ["a", "a"], [[]], {}, {"no": "such"}, {"name": "nobody"}),
)

NOT_PLAIN = re.compile(
    r"""\bNone\b|NoneType|\bTrue\b|\bFalse\b|Input|input should|unable to|valid (string|integer|
    dictionary)|Extra\ input|extra\ input|function-|\[key\]|(literal|dict|tuple|list)\[|
    constrained-|[Vv]alidat|pydantic|Value\ error|(?<![\w-])--[a-z]|`?kdnas\ [a-z]|Traceback|
    \b(int|str|dict|tuple|float)\b|field\ required|discriminator|body\.|query\.|something\ else""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Place:
    """A service, and what a request may have changed of it."""

    client: TestClient
    database: Database
    home: Path

    def state(self) -> tuple[Any, ...]:
        """What changes when anything is written: the database's own number of that, and files."""
        with self.database.read() as session:
            version = session.execute(text("PRAGMA data_version")).scalar()
        files = sorted(
            str(Path(folder) / name)
            for folder, folders, names in os.walk(self.home)
            for name in (*folders, *names)
            if not name.startswith("kdnas.db")
        )
        return version, files


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Place]:
    """A service whose database another connection watches."""
    home = tmp_path_factory.mktemp("wrong")
    (home / "data").mkdir()
    shutil.copy(sqlite_template, home / "kdnas.db")
    environment = {"KDNAS_HOME": str(home), "KDNAS_DATA_ROOTS": str(home / "data")}
    settings = Settings.from_environment(environment)
    with open_database(settings) as database, open_database(settings) as watching:
        app = create_app(settings, database, coordinator=False)
        with TestClient(app, base_url=HERE, raise_server_exceptions=False) as client:
            yield Place(client, watching, home)


Field = tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """Fields of one object of a request, and what must stand beside them for it to be there."""

    owner: str
    fields: tuple[Field, ...]
    beside: dict[str, Any]


def groups(schema: Mapping[str, Any]) -> Iterator[Group]:
    """Every object of a schema, with those of each alternative of a union."""

    def walk(node: Mapping[str, Any], path: Field, beside: dict[str, Any]) -> Iterator[Group]:
        owner = ".".join(path)
        while "$ref" in node:
            owner = node["$ref"].rpartition("/")[2]
            node = schema["$defs"][owner]
        properties = node.get("properties", {})
        if properties:
            yield Group(owner, tuple((*path, name) for name in (*properties, "nosuch")), beside)
        for name, child in properties.items():
            yield from walk(child, (*path, name), beside)
        for tag, ref in node.get("discriminator", {}).get("mapping", {}).items():
            name = "controller.strategies:RandomStrategy" if ":" in tag else tag
            yield from walk({"$ref": ref}, path, put(beside, (*path, "name"), name))
        for key in ("anyOf", "allOf"):
            for one in node.get(key, ()):
                yield from walk(one, path, beside)

    yield from walk(schema, (), {})


def put(body: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    whole = copy.deepcopy(dict(body))
    level = whole
    for name in path[:-1]:
        if not isinstance(level.get(name), dict):
            level[name] = {}
        level = level[name]
    level[path[-1]] = value
    return whole


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    whole = dict(below)
    for key, value in above.items():
        inner = whole.get(key)
        both = isinstance(value, Mapping) and isinstance(inner, Mapping)
        whole[key] = merged(inner, value) if both and inner is not None else value
    return whole


def misworded(answer: Any, sent: Any = None) -> list[str]:
    """Say what is not as it should be in the words of a refusal."""
    said = answer.json()
    errors = said.get("errors", ())
    told = [said["detail"], *(one["message"] for one in errors)]
    own = [
        re.sub(r"'(?:[^'\\]|\\.)*'", "''", one) for one in told
    ]  # what was given may be anything
    wrong = [f"not plain: {one}" for one in own if NOT_PLAIN.search(one)]
    for one in errors:
        part, *names = one["where"].split(".")
        if part == "body":
            leads, value = _at(names, sent)
            if not leads and "is missing" not in one["message"]:
                wrong.append(f"leads nowhere: {one['where']}: {one['message']}")
            elif leads and not _tells(one["message"], value):
                wrong.append(f"does not tell {shown(value)}: {one['message']}")
        if part == "query" and len(names) != 1:
            wrong.append(f"no parameter: {one['where']}")
    return wrong


def _at(names: list[str], sent: Any) -> tuple[bool, Any]:
    """Whether a path is that of what was sent, and what is there."""
    for name in names:
        if isinstance(sent, list) and name.isdecimal() and int(name) < len(sent):
            sent = sent[int(name)]
        elif isinstance(sent, Mapping) and name in sent:
            sent = sent[name]
        elif not isinstance(sent, str | int | list):  # these are short for an object
            return False, None
    return True, sent


def _tells(message: str, value: Any) -> bool:
    if isinstance(value, list | dict | bool) or " key " in message:
        return True  # true may be taken for 1, and of a key its own name is told
    return shown(value).strip("'")[:20] in message or str(value)[:20] in message


def schema_of(path: str, place: Place) -> dict[str, Any]:
    document = place.client.app.openapi()  # type: ignore[attr-defined]
    body = document["paths"][f"/api/v1/{path}"]["post"]["requestBody"]
    own = body["content"]["application/json"]["schema"]
    return {**own, "$defs": document["components"]["schemas"]}


def ask(place: Place, method: str, path: str, sent: Any) -> tuple[int, list[str]]:
    """Send a body; return the status, and what is amiss with a refusal."""
    before = place.state()
    headers = {"Content-Type": "application/json"}
    answer = place.client.request(method, path, content=json.dumps(sent), headers=headers)
    if answer.status_code < 300:
        return answer.status_code, []
    wrong = misworded(answer, sent)
    if answer.status_code not in (404, 409, 422):
        wrong.append(f"status {answer.status_code}")
    if place.state() != before:
        wrong.append("something was written")
    return answer.status_code, wrong


@pytest.mark.parametrize("path", REQUESTS)
def test_all_fields_of_an_object_filled_wrongly(path: str, place: Place) -> None:
    """Pydantic tells of all at once; an object that several requests have is tried in the first."""
    found, refused, known = [], 0, set()
    for other in itertools.takewhile(lambda one: one != path, REQUESTS):
        known |= {group.owner for group in groups(schema_of(other, place))}
    for group in groups(schema_of(path, place)):
        if group.owner in known:
            continue
        for value in WRONG[::2]:
            sent = merged(REQUESTS[path], group.beside)
            for field in group.fields:
                if field != (*group.fields[0][:-1], "name") or not group.beside:
                    sent = put(sent, field, value)
            status, wrong = ask(place, "POST", f"/api/v1/{path}", sent)
            refused += status == 422
            found += [f"{group.owner} = {shown(value)}: {one}" for one in wrong]
    assert refused >= 10
    assert not found, f"{len(found)} of {refused}:\n" + "\n".join(found[:150])


@pytest.mark.slow
@pytest.mark.parametrize("path", REQUESTS)
def test_each_field_filled_wrongly(path: str, place: Place) -> None:
    found, refused = [], 0
    for group in groups(schema_of(path, place)):
        for field, value in itertools.product(group.fields, WRONG):
            sent = put(merged(REQUESTS[path], group.beside), field, value)
            status, wrong = ask(place, "POST", f"/api/v1/{path}", sent)
            refused += status == 422
            found += [f"{'.'.join(field)} = {shown(value)}: {one}" for one in wrong]
    assert refused > 100
    assert not found, f"{len(found)} of {refused}:\n" + "\n".join(found[:150])


def test_parameters_of_every_list_filled_wrongly(place: Place) -> None:
    document, found, refused = place.client.app.openapi(), [], 0  # type: ignore[attr-defined]
    values = ("no such thing", "", "-1", "1.5", "9" * 40, "a\0b", "nan", "x" * 1100)
    for path, operations in document["paths"].items():
        parameters = operations.get("get", {}).get("parameters", ())
        names = [one["name"] for one in parameters if one["in"] == "query"]
        if not names or path == "/api/v1/events":  # which does not end where it is right
            continue
        for value in values:
            where = re.sub(r"\{\w+\}", "x", path)
            answer = place.client.get(where, params={name: [value] * 2 for name in names})
            assert answer.status_code < 500
            if answer.status_code == 422:
                refused += 1
                found += [f"{path} {value[:20]!r}: {one}" for one in misworded(answer)]
    assert refused > 100
    assert not found, f"{len(found)} of {refused}:\n" + "\n".join(found[:150])


def test_a_change_of_a_job_filled_wrongly(place: Place) -> None:
    made = [
        place.client.post("/api/v1/searches", json={"name": name}).json()["id"]
        for name in ("one", "other")
    ]
    found = []
    for field, value in itertools.product(("action", "name", "note", "labels", "nosuch"), WRONG):
        if field == "note" and isinstance(value, str) and len(value) < 2000:
            continue
        sent = {"note": "kept out", "labels": ["kept-out"], field: value}
        _, wrong = ask(place, "PATCH", f"/api/v1/jobs/{made[0]}", sent)
        found += [f"{field} = {shown(value)}: {one}" for one in wrong]
    for sent in ({"name": "other"}, {"name": made[1]}, {"action": "resume"}):
        whole = {"note": "kept out", "labels": ["kept-out"], **sent}
        status, wrong = ask(place, "PATCH", f"/api/v1/jobs/{made[0]}", whole)
        assert status == 409
        found += [f"{sent}: {one}" for one in wrong]
    assert not found, "\n".join(found)
