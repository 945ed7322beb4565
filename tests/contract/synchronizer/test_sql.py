"""The SQL backend keeps the contract, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from skep.contracts.synchronizer import BackendContract, BackendModel, Store
from skep.processes.servers.postgres import PostgresServer
from tests.support.samples import examples
from tests.support.stores.sql import PostgresStore, SqliteStore

_names = (f"skep{number}" for number in itertools.count())


class TestSqlite(BackendContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        async with SqliteStore(tmp_path / "synchronizer.db") as store:
            yield store


@pytest.mark.needs_part("postgres")
class TestPostgres(BackendContract):
    @pytest.fixture
    async def store(self, postgres: PostgresServer) -> AsyncIterator[Store]:
        async with PostgresStore(postgres.url(), next(_names)) as store:
            yield store


class SqliteModel(BackendModel):
    def make_store(self) -> Store:
        self.folder = tempfile.TemporaryDirectory()
        return SqliteStore(Path(self.folder.name) / "synchronizer.db")

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


TestSqliteModel = SqliteModel.TestCase
TestSqliteModel.settings = settings(max_examples=examples(15), stateful_step_count=20)


class PostgresModel(BackendModel):
    url: ClassVar[str]

    def make_store(self) -> Store:
        return PostgresStore(self.url, next(_names))


@pytest.mark.needs_part("postgres")
def test_postgres_does_as_the_model_in_any_order(postgres: PostgresServer) -> None:
    class Model(PostgresModel):
        url = postgres.url()

    run_state_machine_as_test(Model, settings=settings(max_examples=examples(10), stateful_step_count=20))
