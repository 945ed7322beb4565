"""Cells with NATS servers of their own, as processes above them reach them: by rows, signed in as those say."""

from __future__ import annotations

import contextlib
import json
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from skep.config.sections import CellSettings, Config, StateSettings, TransportSettings
from skep.contracts.eventually import eventually
from skep.contracts.transport_server import LONG, QUESTION, Server
from skep.database.api import cells as cell_rows
from skep.database.opening import open_database
from skep.domain.cells import Cell
from skep.domain.ids import CellUuid, new_uuid
from skep.messages.to_cell_conductor import Permission
from skep.processes import addresses
from skep.processes.cells import LiveCells, own_transports
from skep.processes.databases import Places
from skep.processes.directory import StateDirectory, write_private
from skep.processes.servers.nats import NatsServer
from skep.processes.wiring import transport_in_cell, transport_of
from skep.telemetry.metrics import Metrics
from skep.transport.base import Address

pytestmark = pytest.mark.needs_part("nats-server")
HERE = Address("cell.c.conductor")


def users(user: str, password: str) -> str:
    return "authorization: " + json.dumps({"users": [{"user": user, "password": password}]})


@pytest.mark.parametrize("is_opened", [False, True], ids=["followed", "opened_before"])
async def test_a_cell_moves_to_servers_of_its_own(tmp_path: Path, is_opened: bool) -> None:
    """Its servers take another user than the shared ones, whose sign-in stands in a file."""
    file = tmp_path / "sign-in"
    write_private(file, b"above:one\n")
    (tmp_path / "db").mkdir()
    directory = StateDirectory(tmp_path)
    directory.open()
    async with (
        NatsServer(tmp_path / "shared", jetstream=False, config=users("above", "one")) as shared_server,
        NatsServer(tmp_path / "own", jetstream=False, config=users("cell", "two")) as own_server,
        contextlib.AsyncExitStack() as stack,
    ):
        settings = TransportSettings(kind="nats", url=shared_server.url, sign_in_file=str(file))
        own_url = own_server.url.replace("nats://", "nats://cell:two@")
        config = Config(state=StateSettings(directory=str(tmp_path)), transport=settings)
        metrics, places = Metrics(), Places(config, directory)
        api = await open_database("api", tmp_path / "db/api.db", upgrade=True)
        cell, other = (Cell(uuid=CellUuid(new_uuid()), name=name) for name in ("east", "west"))
        databases = {
            one.name: await open_database(one.name, places.of(one.name), upgrade=True) for one in (cell, other)
        }
        for database in (api, *databases.values()):
            stack.push_async_callback(database.close)
        for one in (cell, other):
            await api.write(partial(cell_rows.add, cell=one, now=1))
        shared = transport_of(config, metrics, "skep")
        await shared.open()
        stack.push_async_callback(shared.close)
        # The cell's own conductor knows the servers by its configuration.
        of_cell = replace(config, cells=(CellSettings(name="east", transport_url=own_url),))
        conductor, server = transport_in_cell(of_cell, metrics, "skep-cell-conductor", "east"), Server()
        await conductor.open()
        stack.push_async_callback(conductor.close)
        stack.push_async_callback((await conductor.serve(HERE, server.handlers)).close)
        maker = own_transports(config, metrics, "skep")
        opened = databases if is_opened else {}
        live = LiveCells(api, places, directory, shared, make_transport=maker, opened=opened)
        stack.push_async_callback(live.close)
        await live.start()
        assert live.accesses[cell.uuid].transport is shared
        where = addresses.to_store(directory, "", own_url)
        await api.write(partial(cell_rows.move, uuid=cell.uuid, addresses=where))

        async def is_followed() -> bool:
            await live.refresh()
            return live.accesses[cell.uuid].transport is not shared

        await eventually(is_followed, "the row is followed")
        transport = live.accesses[cell.uuid].transport
        assert transport is not None
        assert await transport.call(HERE, QUESTION, timeout=LONG) == Permission(granted=True)
        assert live.accesses[other.uuid].transport is shared
    directory.close()
