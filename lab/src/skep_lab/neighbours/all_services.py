"""Real Keystone, Glance, Neutron and Cinder beside a cloud, with the PostgreSQL and the RabbitMQ that they need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from skep.processes.servers.postgres import PostgresServer
from skep_lab.neighbours.identity_and_images import RealNeighbours, sign_in
from skep_lab.neighbours.networks import RealNeutron
from skep_lab.neighbours.volumes import RealCinder
from skep_lab.rabbitmq import RabbitServer


@dataclass(frozen=True, slots=True)
class AllNeighbours:
    """The four of them, running."""

    first: RealNeighbours
    neutron: RealNeutron
    cinder: RealCinder
    external_network: str


@asynccontextmanager
async def all_neighbours(folder: Path, compute_url: str) -> AsyncIterator[AllNeighbours]:
    """Run the four for the length of a block, with `compute_url` in the catalogue."""
    await asyncio.to_thread(folder.mkdir)
    first = RealNeighbours(folder / "identity-and-images")
    async with AsyncExitStack() as stack:
        postgres = PostgresServer()
        stack.callback(postgres.remove)
        rabbit = RabbitServer(folder / "rabbitmq")
        async with asyncio.TaskGroup() as preparing:
            preparing.create_task(asyncio.to_thread(first.prepare))
            preparing.create_task(asyncio.to_thread(postgres.start))
            preparing.create_task(stack.enter_async_context(rabbit))
        # They are of SQLAlchemy's other dialect for the same server.
        neutron_database, cinder_database = [
            postgres.create_database(name).replace("+psycopg:", "+psycopg2:") for name in ("neutron", "cinder")
        ]
        neutron = RealNeutron(folder / "neutron", first.auth_url, neutron_database)
        cinder = RealCinder(folder / "cinder", first.auth_url, first.glance.url, cinder_database, rabbit.url)
        servers = (first.keystone, first.glance, neutron.service)
        async with asyncio.TaskGroup() as preparing:
            for one in (neutron, cinder):
                preparing.create_task(asyncio.to_thread(one.prepare))
        for server in servers:
            stack.push_async_callback(asyncio.to_thread, server.stop)
        stack.push_async_callback(asyncio.to_thread, cinder.stop)
        async with asyncio.TaskGroup() as starting:
            for server in servers:
                starting.create_task(server.start())
            starting.create_task(cinder.start())
        await first.populate({"compute": compute_url, "network": neutron.url, "block-storage": cinder.url})
        async with httpx.AsyncClient(base_url=first.auth_url, timeout=60.0, trust_env=False) as keystone:
            token = await sign_in(keystone, "admin", "admin")
        external = await neutron.populate(token)
        await cinder.populate(token)
        yield AllNeighbours(first, neutron, cinder, external)
