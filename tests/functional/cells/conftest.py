"""A PostgreSQL for the cells that go down; the others are SQLite files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skep.processes.servers.postgres import PostgresServer


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    """A server of the test's own: it is halted and killed."""
    with PostgresServer() as server:
        yield server
