"""A PostgreSQL for the tests of this folder alone: they halt it and kill it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skep.processes.servers.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server
