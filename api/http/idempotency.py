"""``Idempotency-Key``: a ``POST`` that is sent again does not do its work again.

A route asks for :data:`OnceDep` and lets it answer. The function that it gives does the change in
the session that it gets, which is the one transaction of the request, and returns what to answer;
what can be refused beforehand is refused before::

    @router.post("/searches", status_code=202, response_model=Search)
    def create_search(spec: SearchSpec, settings: SettingsDep, once: OnceDep) -> Response:
        check_paths(spec, settings)

        def create(session: Session) -> Answer:  # Session of kdnas.db.engine
            record = searches.create_search(session, spec.to_json(), owner_kind="service")
            return Answer(Search.of(record), location=f"/api/v1/searches/{record.id}")

        return once.answer(202, create)

Without a key the same happens without memory. Only what succeeded is remembered: a request that
was refused may be sent again under its key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from api.http.dependencies import DatabaseDep, UserDep
from kdnas.db.engine import Database, Session
from kdnas.db.repository.idempotency import StoredAnswer, answer_once, earlier_answer
from kdnas.errors import ConflictError, NotFoundError

KEY_PATTERN = r"^[!-~]{1,200}$"
"""Visible characters of ASCII."""

REPLAYED = "Idempotency-Replayed"


@dataclass(frozen=True)
class Answer:
    """What a ``POST`` answers: the new thing, and its path."""

    body: BaseModel
    location: str | None = None


class Once:
    """Answers one request, or gives the answer of its twin; see the module."""

    def __init__(
        self,
        database: Database,
        route: str,
        key: str | None,
        fingerprint: str,
        by: str | None = None,
    ) -> None:
        self._database = database
        self._by = by
        self._route = route
        self._key = key
        self._fingerprint = fingerprint

    def earlier(self, require: Callable[[Session, str], None]) -> Response | None:
        """Give the answer of an earlier twin, if there was one.

        To be asked before what a request names is looked at: that may be gone since.

        Args:
            require: as :meth:`answer` takes it.

        Raises:
            ConflictError: the key was used for another body, or what it made has been deleted.
        """
        if self._key is None:
            return None
        with self._database.read() as session:
            given = earlier_answer(session, self._route, self._key, self._fingerprint)
            return None if given is None else self._replayed(session, given, require)

    def answer(
        self,
        status: int,
        act: Callable[[Session], Answer],
        require: Callable[[Session, str], None] | None = None,
    ) -> Response:
        """Do what was asked and answer with this status, unless it was done before.

        Args:
            status: of the answer.
            act: does it.
            require: raises NotFoundError unless there is something with this id, of which an answer
                may name several as its ``items``; for what can be deleted, since an earlier answer
                must not name what is gone.

        Raises:
            ConflictError: the key was used for another body, or what it made has been deleted; or
                what ``act`` raises.
        """

        def stored(session: Session) -> StoredAnswer:
            done = act(session)
            return StoredAnswer(status, done.body.model_dump(mode="json"), done.location)

        with self._database.write(self._by) as session:
            if self._key is None:
                given, replayed = stored(session), False
            else:
                given, replayed = answer_once(
                    session, self._route, self._key, self._fingerprint, stored
                )
            if replayed:
                return self._replayed(session, given, require)
        return _response(given)

    def _replayed(
        self,
        session: Session,
        given: StoredAnswer,
        require: Callable[[Session, str], None] | None,
    ) -> Response:
        if require is not None:
            try:
                for one in given.body.get("items", [given.body]):
                    require(session, one["id"])
            except NotFoundError:
                raise ConflictError(
                    f"what Idempotency-Key {self._key!r} made has been deleted since; send a "
                    "new key to make another"
                ) from None
        answer = _response(given)
        answer.headers[REPLAYED] = "true"
        return answer


def _response(given: StoredAnswer) -> JSONResponse:
    headers = {"Location": given.location} if given.location else {}
    return JSONResponse(dict(given.body), status_code=given.status, headers=headers)


async def get_once(
    request: Request,
    database: DatabaseDep,
    user: UserDep,
    key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            pattern=KEY_PATTERN,
            description="The same key with the same body gives the first answer again.",
        ),
    ] = None,
) -> Once:
    """Return what answers this request once."""
    route = f"{request.method} {request.url.path}"
    if user.name is not None:  # nobody is given what another's request made
        route += f" by {user.name}"
    return Once(database, route, key, _fingerprint(await request.body()), user.name)


def _fingerprint(body: bytes) -> str:
    """Tell two bodies apart by what they say, not by how it is laid out."""
    with suppress(ValueError):  # what is no JSON the route refuses
        body = json.dumps(json.loads(body), sort_keys=True).encode()
    return hashlib.sha256(body).hexdigest()


OnceDep = Annotated[Once, Depends(get_once)]
