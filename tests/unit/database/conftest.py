"""Databases with the real tables, of both kinds, and rows to try the writes on. Each test's changes are rolled back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from skep.database.api.schema import metadata as api_metadata
from skep.database.cell.schema import metadata as cell_metadata

BOTH = ["sqlite", pytest.param("postgresql", marks=pytest.mark.needs_part("postgres"))]


class Opened:
    """A connection to one database of each kind, made when it is first asked for."""

    def __init__(self, metadata: sa.MetaData, name: str) -> None:
        self._metadata = metadata
        self._name = name
        self._connections: dict[str, sa.Connection] = {}

    def connection(self, kind: str, request: pytest.FixtureRequest) -> sa.Connection:
        if kind not in self._connections:
            url = "sqlite://"
            if kind == "postgresql":
                url = request.getfixturevalue("postgres").create_database(f"rolled_back_{self._name}")
            engine = sa.create_engine(url)
            self._metadata.create_all(engine)
            self._connections[kind] = engine.connect()
        return self._connections[kind]

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
            connection.engine.dispose()


@pytest.fixture(scope="session")
def _cell() -> Iterator[Opened]:
    opened = Opened(cell_metadata, "cell")
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def _api() -> Iterator[Opened]:
    opened = Opened(api_metadata, "api")
    yield opened
    opened.close()


@pytest.fixture(params=BOTH)
def cell(_cell: Opened, request: pytest.FixtureRequest) -> Iterator[sa.Connection]:
    """A connection to an empty cell."""
    connection = _cell.connection(request.param, request)
    yield connection
    connection.rollback()


@pytest.fixture(params=BOTH)
def api(_api: Opened, request: pytest.FixtureRequest) -> Iterator[sa.Connection]:
    """A connection to an empty API database."""
    connection = _api.connection(request.param, request)
    yield connection
    connection.rollback()
