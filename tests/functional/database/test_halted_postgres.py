"""A PostgreSQL that hangs is noticed once, cut off, and used again by itself; nobody waits for it at the end."""

from __future__ import annotations

import asyncio

import pytest
import sqlalchemy as sa

from skep.database.engine import Database
from skep.domain.errors import StorageUnavailable
from skep.processes.servers.postgres import PostgresServer
from tests.support.things import add, answering, metadata, names


@pytest.mark.needs_part("postgres")
class TestPostgresql:
    """With the server's processes halted, connections stand and nothing comes over them."""

    async def test_a_halted_server_is_noticed_once_and_used_again(self, postgres: PostgresServer) -> None:
        database = await self._database(postgres, "halted", 0.2)
        postgres.pause()
        try:
            for _ in range(2):
                with pytest.raises(StorageUnavailable):
                    await database.read(names, within=0.1)
                with pytest.raises(StorageUnavailable):
                    await database.write(lambda c: c.execute(add("halted")), within=0.1)
            waiting = [asyncio.create_task(database.read(names)) for _ in range(2)]
            # Both reading threads hang with the server; they are cut off, so that they may serve again.
            assert all(
                isinstance(one, StorageUnavailable | sa.exc.DBAPIError)
                for one in await asyncio.gather(*waiting, return_exceptions=True)
            )
        finally:
            postgres.resume()
        await answering(database)
        await database.write(lambda c: c.execute(add("after")), within=30.0)
        assert "after" in await database.read(names, within=30.0)
        await database.close()

    async def test_a_halted_server_does_not_keep_a_process_from_ending(
        self, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("skep.database.engine.CLOSE_SECONDS", 0.1)
        database = await self._database(postgres, "closed", 5.0)
        postgres.pause()
        try:
            with pytest.raises(StorageUnavailable):
                await database.read(names, within=0.1)
            # A probe connects by now.
            reading = asyncio.create_task(database.read(names))
            writing = asyncio.create_task(database.write(lambda c: c.execute(add("lost"))))
            await asyncio.sleep(0)
            await database.close()
            ends = await asyncio.gather(reading, writing, return_exceptions=True)
            assert all(isinstance(one, StorageUnavailable) for one in ends), ends
        finally:
            postgres.resume()

    async def _database(self, postgres: PostgresServer, name: str, busy_timeout: float) -> Database:
        database = Database(postgres.create_database(name), busy_timeout=busy_timeout)
        await asyncio.to_thread(metadata.create_all, database.engine)
        await asyncio.gather(*(database.read(names) for _ in range(2)), database.write(lambda c: c.execute(add("one"))))
        return database
