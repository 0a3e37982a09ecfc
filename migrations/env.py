"""Run migrations on the connection that ``kdnas.db.migrate`` hands over.

Started by the ``alembic`` program itself (to write a new revision), it connects to
``KDNAS_DATABASE_URL``.
"""

from __future__ import annotations

from typing import Any, Literal

from alembic import context
from sqlalchemy import Connection

from kdnas.db.base import UtcDateTime
from kdnas.db.engine import make_engine, parse_url
from kdnas.db.migrate import METADATA
from kdnas.settings import Settings


def render(kind: str, item: Any, _: Any) -> str | Literal[False]:
    """Write our type of time as SQLAlchemy's own, so that revisions stand by themselves."""
    return "sa.DateTime(timezone=True)" if isinstance(item, UtcDateTime) else False


def run(connection: Connection) -> None:
    """Migrate in one transaction; on SQLite tables are rebuilt where ALTER cannot do it."""
    context.configure(
        connection=connection,
        target_metadata=METADATA,
        compare_type=True,
        render_item=render,
        render_as_batch=connection.dialect.name == "sqlite",
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    url = parse_url(Settings.from_environment().database_url)
    engine = make_engine(url, foreign_keys=False).execution_options(kdnas_write=True)
    with engine.begin() as own:
        run(own)
