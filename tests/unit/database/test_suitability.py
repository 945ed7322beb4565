"""PostgreSQL databases that would not do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from psycopg import sql

from skep.database.dialects import dialect_of
from skep.database.suitability import refuse_unsuitable
from skep.domain.errors import Misconfigured
from skep.processes.servers.postgres import PostgresServer

pytestmark = pytest.mark.needs_part("postgres")


@pytest.fixture
def engine(postgres: PostgresServer, request: pytest.FixtureRequest) -> Iterator[sa.Engine]:
    """A database that is made with other words than ours."""
    name, words = request.param
    with postgres.connect() as connection:
        made = sql.SQL("CREATE DATABASE {} TEMPLATE template0 ").format(sql.Identifier(name))
        connection.execute(made + sql.SQL(words))
    opened = dialect_of(postgres.url(name), 5.0).engine()
    yield opened
    opened.dispose()


@pytest.mark.parametrize("engine", [("fit", "ENCODING 'UTF8' LOCALE 'C'"), ("fit2", "LOCALE 'C.UTF-8'")], indirect=True)
def test_the_order_of_code_points_is_taken(engine: sa.Engine) -> None:
    refuse_unsuitable(engine, "fit")


@pytest.mark.parametrize(
    "engine", [("words", "ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'en' LOCALE 'C'")], indirect=True
)
def test_the_order_of_a_language_is_refused(engine: sa.Engine) -> None:
    with pytest.raises(Misconfigured, match=r"database words sorts text by the rules of a language.*--locale=C words`"):
        refuse_unsuitable(engine, "words")


@pytest.mark.parametrize("engine", [("bytes", "ENCODING 'SQL_ASCII' LOCALE 'C'")], indirect=True)
def test_another_encoding_is_refused(engine: sa.Engine) -> None:
    with pytest.raises(Misconfigured, match="database bytes has the encoding SQL_ASCII, but UTF8"):
        refuse_unsuitable(engine, "bytes")
