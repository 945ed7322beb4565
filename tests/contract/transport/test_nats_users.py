"""NATS servers on which each host has a user: one hears and says its own, and accounts change while servers run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from skep.config.nats_security import signed_in_by
from skep.config.sections import TransportSettings
from skep.contracts.eventually import eventually
from skep.domain.cells import Cell
from skep.domain.errors import Misconfigured
from skep.domain.ids import CellUuid, NodeUuid, new_uuid
from skep.messages.to_compute import ReportHostNow
from skep.processes.servers.nats import NatsServer
from skep.transport.base import (
    SCHEDULER,
    SUPER_CONDUCTOR,
    cell_conductor,
    compute,
    scheduler_for,
    super_conductor_for,
)
from skep.transport.nats import NatsTransport
from skep.transport.nats_accounts import NatsListening, NatsPasswords, signed_in
from skep.transport.nats_accounts import server_config as server_config_with_passwords
from skep.transport.nats_keys import Keys
from skep.transport.nats_updates import update_accounts
from skep.transport.nats_users import (
    credentials_above,
    credentials_of_conductors,
    credentials_of_host,
    credentials_of_system,
    inbox_of,
    server_config,
    signed_accounts,
)
from skep.transport.subjects import subject_of
from tests.contract.transport.test_nats_accounts import Listener, all_works

pytestmark = [pytest.mark.needs_part("nats-server")]

A = Cell(uuid=CellUuid("0b6c7f0e-1f4e-4f0e-8a57-0d8a3a3a1a01"), name="a")
B = Cell(uuid=CellUuid("0b6c7f0e-1f4e-4f0e-8a57-0d8a3a3a1b02"), name="b")
H1, H2 = (NodeUuid(f"0b6c7f0e-1f4e-4f0e-8a57-00000000000{number}") for number in (1, 2))
KEYS = Keys((b"secret" * 6,))
NOW = 1_700_000_000
"""Seconds since the epoch; servers compare what was issued, and look at no clock."""

Open = Callable[..., Awaitable[NatsTransport]]


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def server(stack: AsyncExitStack, tmp_path: Path) -> NatsServer:
    listening = NatsListening(address="127.0.0.1:-1", jetstream=str(tmp_path / "store"))
    config = server_config((A,), KEYS, listening, str(tmp_path / "accounts"), NOW)
    return await stack.enter_async_context(NatsServer(tmp_path / "nats", jetstream=False, config=config))


@pytest.fixture
def opened(stack: AsyncExitStack, server: NatsServer, tmp_path: Path) -> Open:
    async def open_(credentials: str, inbox: str = "_INBOX") -> NatsTransport:
        file = tmp_path / f"{new_uuid()}.creds"  # of its own: it is followed when it changes
        file.write_text(credentials)
        settings = TransportSettings(kind="nats", url=server.url, credentials_file=str(file), inbox=inbox)
        transport = NatsTransport(settings)
        await transport.open()
        stack.push_async_callback(transport.close)
        return transport

    return open_


def host(node: NodeUuid, name: str, now: int = NOW) -> str:
    return credentials_of_host(KEYS, A, node, name, now)


async def tell(server: NatsServer, cells: tuple[Cell, ...], now: int, revoked: Any = None, keys: Keys = KEYS) -> None:
    accounts = signed_accounts(cells, keys, now, revoked=revoked)
    settings = TransportSettings(kind="nats", url=server.url)
    await update_accounts(settings, credentials_of_system(keys, now), accounts.values())


async def client_of(stack: AsyncExitStack, server: NatsServer, credentials: str, **options: Any) -> Client:
    client: Client = await nats.connect(server.url, allow_reconnect=False, **signed_in_by(credentials), **options)
    stack.push_async_callback(client.close)
    return client


async def test_everything_that_is_needed_goes(opened: Open) -> None:
    above, conductor = await opened(credentials_above(KEYS, NOW)), await opened(credentials_of_conductors(KEYS, A, NOW))
    agent = await opened(host(H1, "host.with.dots"), inbox_of(H1))
    await all_works(above, above, conductor, agent)


async def test_a_host_neither_hears_nor_says_what_is_not_its_own(
    server: NatsServer, opened: Open, stack: AsyncExitStack
) -> None:
    refused: list[str] = []

    async def on_error(error: Exception) -> None:
        refused.append(str(error).lower())

    heard: list[str] = []

    async def hear(message: Any) -> None:
        heard.append(message.subject)

    conductor, first = await opened(credentials_of_conductors(KEYS, A, NOW)), await opened(host(H1, "h1"), inbox_of(H1))
    at_first = Listener()
    await first.serve(compute(A.uuid, "h1"), {ReportHostNow: at_first.take})
    thief = await client_of(stack, server, host(H2, "h2"), error_cb=on_error, inbox_prefix=inbox_of(H2).encode())
    own_up = [subject_of("skep", address(A.uuid)) for address in (scheduler_for, super_conductor_for)]
    others = [subject_of("skep", one) for one in (SCHEDULER, SUPER_CONDUCTOR, cell_conductor(B.uuid))]
    theirs = [subject_of("skep", compute(A.uuid, "h1")), f"{inbox_of(H1)}.answers.1", *own_up, *others]
    publish = [*theirs, subject_of("skep", compute(A.uuid, "h2")), "$SYS.REQ.CLAIMS.UPDATE", "$JS.API.INFO"]
    subscribe = [
        *theirs,
        subject_of("skep", cell_conductor(A.uuid)),
        "_INBOX.>",
        "skep.cell.*.compute.*",
        ">",
        "$SYS.>",
    ]
    for subject in publish:
        await thief.publish(subject, b"x")
    for subject in subscribe:
        await thief.subscribe(subject, queue="skep", cb=hear)
        await thief.subscribe(subject, cb=hear)

    async def all_refused() -> bool:
        return len(refused) >= len(publish) + 2 * len(subscribe)

    await eventually(all_refused, "each of them is refused")
    for subject in publish:
        assert any("publish" in line and subject.lower() in line for line in refused), subject
    await conductor.cast(compute(A.uuid, "h1"), ReportHostNow())
    await at_first.until(ReportHostNow())
    await thief.flush()
    assert heard == []
    assert len(at_first.heard) == 1


async def test_a_revoked_host_is_out_at_once_and_others_stay(
    server: NatsServer, opened: Open, stack: AsyncExitStack
) -> None:
    stays, goes = await client_of(stack, server, host(H1, "h1")), await client_of(stack, server, host(H2, "h2"))
    await tell(server, (A,), NOW + 1, {A.uuid: {H2: NOW}})

    async def is_out() -> bool:
        return goes.is_closed

    await eventually(is_out, "its connection is ended")
    assert stays.is_connected
    with pytest.raises(Misconfigured, match="refuses our credentials"):
        await opened(host(H2, "h2"))
    assert (await opened(host(H2, "h2", NOW + 1), inbox_of(H2))).connected, "what was issued later is good"


async def test_a_new_cell_is_served_without_a_reload(server: NatsServer, opened: Open) -> None:
    with pytest.raises(Misconfigured, match="refuses our credentials"):
        await opened(credentials_of_conductors(KEYS, B, NOW))
    await tell(server, (A, B), NOW + 1)
    above, listener = await opened(credentials_above(KEYS, NOW)), Listener()
    await above.serve_cells(SCHEDULER, {ReportHostNow: listener.take_of})
    conductor = await opened(credentials_of_conductors(KEYS, B, NOW))

    async def heard() -> bool:
        await conductor.cast(scheduler_for(B.uuid), ReportHostNow())
        return (B.uuid, ReportHostNow()) in listener.heard

    await eventually(heard, "the new cell reaches the schedulers")


async def test_what_another_installation_signs_is_refused(server: NatsServer, opened: Open) -> None:
    others = Keys((b"another" * 6,))
    with pytest.raises(Misconfigured, match="do not know this installation's operator"):
        await tell(server, (A,), NOW + 9, keys=others)
    with pytest.raises(Misconfigured, match="refuses our credentials"):
        await opened(credentials_of_host(others, A, H1, "h1", NOW))


async def test_a_signing_key_is_replaced_while_all_stay_signed_in(server: NatsServer, tmp_path: Path) -> None:
    new = Keys((b"new" * 12, b"secret" * 6))
    server.stop()
    listening = NatsListening(address="127.0.0.1:-1")
    config = server_config((A,), new, listening, str(tmp_path / "accounts"), NOW + 1)
    old_host, new_host = host(H1, "h1"), credentials_of_host(new, A, H1, "h1", NOW + 1)
    async with NatsServer(tmp_path / "new", jetstream=False, config=config) as again:
        for credentials in (old_host, new_host):
            assert await is_let_in(again, credentials, tmp_path)
        await tell(again, (A,), NOW + 2, {A.uuid: {H1: NOW + 1}}, new)
        for credentials in (old_host, new_host):
            assert not await is_let_in(again, credentials, tmp_path)


async def is_let_in(server: NatsServer, credentials: str, folder: Path) -> bool:
    file = folder / "asking.creds"
    file.write_text(credentials)
    settings = TransportSettings(kind="nats", url=server.url, credentials_file=str(file), inbox=inbox_of(H1))
    transport = NatsTransport(settings)
    try:
        await transport.open()
    except Misconfigured:
        return False
    await transport.close()
    return True


async def test_servers_are_changed_over_under_clients_that_have_both(server: NatsServer, tmp_path: Path) -> None:
    passwords, with_users = NatsPasswords(b"secret"), server
    config = server_config_with_passwords((A,), passwords, NatsListening(address="127.0.0.1:-1"))
    async with NatsServer(tmp_path / "old", jetstream=False, config=config) as old:
        await changed_over(old, with_users, passwords)


async def changed_over(server: NatsServer, with_users: NatsServer, passwords: NatsPasswords) -> None:
    with pytest.raises(Misconfigured, match="--host-users"):
        await tell(server, (A,), NOW)
    user = f"{A.uuid}.compute"
    url = signed_in(server.url, user, passwords.of(user))
    for asking in (url, url.replace(str(server.port), str(with_users.port))):
        client = await nats.connect(asking, allow_reconnect=False, **signed_in_by(host(H1, "h1")))
        assert client.is_connected
        await client.close()
