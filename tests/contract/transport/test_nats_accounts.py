"""NATS accounts, on real servers that run with the configuration that is printed: cells are apart, and all works."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from skep.config.sections import TransportSettings
from skep.contracts.eventually import PATIENCE, eventually
from skep.domain.cells import Cell
from skep.domain.context import RequestContext
from skep.domain.errors import Misconfigured, Unreachable
from skep.domain.ids import CELL0, CellUuid, InstanceUuid
from skep.messages.to_cell_conductor import InstancesChanged, MayBuild, Permission
from skep.messages.to_compute import ReportHostNow
from skep.messages.to_scheduler import ListNamespaces, ListNamespacesReply
from skep.messages.to_scheduler_liveness import Beat, BeatReply
from skep.messages.to_super_conductor import CellChanged
from skep.processes.ports import free_port
from skep.processes.servers.nats import NatsServer
from skep.transport.base import (
    SCHEDULER,
    SUPER_CONDUCTOR,
    Address,
    CellHandlers,
    Handlers,
    cell_conductor,
    compute,
    scheduler_for,
    super_conductor_for,
)
from skep.transport.nats import NatsTransport
from skep.transport.nats_accounts import (
    ABOVE_USER,
    CellRole,
    NatsListening,
    NatsPasswords,
    Tls,
    cell_server_config,
    server_config,
    signed_in,
    user_of,
)
from skep.transport.subjects import subject_of

pytestmark = [pytest.mark.needs_part("nats-server")]

A = Cell(uuid=CellUuid("0b6c7f0e-1f4e-4f0e-8a57-0d8a3a3a1a01"), name="a")
B = Cell(uuid=CellUuid("0b6c7f0e-1f4e-4f0e-8a57-0d8a3a3a1b02"), name="b")
CELLS = (A, B, Cell(uuid=CELL0, name="cell0"))
PASSWORDS = NatsPasswords(b"secret")
QUESTION = MayBuild(instance=InstanceUuid("i"), attempt=1, host="h")
LONG, SHORT = PATIENCE, 0.3

Open = Callable[[str], Awaitable[NatsTransport]]


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def server(stack: AsyncExitStack, tmp_path: Path) -> NatsServer:
    listening = NatsListening(address="127.0.0.1:-1", jetstream=str(tmp_path / "store"))
    config = server_config(CELLS, PASSWORDS, listening)
    return await stack.enter_async_context(NatsServer(tmp_path / "nats", jetstream=False, config=config))


def url_of(server: NatsServer, cell: Cell | None, role: CellRole = "above") -> str:
    user = ABOVE_USER if cell is None else user_of(cell, role)
    return signed_in(server.url, user, PASSWORDS.of(user))


@pytest.fixture
def opened(stack: AsyncExitStack) -> Open:
    async def open_(url: str) -> NatsTransport:
        transport = NatsTransport(TransportSettings(kind="nats", url=url))
        await transport.open()
        stack.push_async_callback(transport.close)
        return transport

    return open_


class Listener:
    """Notes who was told what."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    async def take(self, message: Any, _context: RequestContext | None) -> Any:
        self.heard.append(message)
        return Permission(granted=True)

    async def take_of(self, cell: CellUuid, message: Any, _context: RequestContext | None) -> Any:
        self.heard.append((cell, message))
        return Permission(granted=True)

    async def until(self, wanted: Any) -> None:
        async def is_there() -> bool:
            return wanted in self.heard

        await eventually(is_there, f"{wanted} is heard")


async def all_works(above: NatsTransport, hints: NatsTransport, conductor: NatsTransport, agent: NatsTransport) -> None:
    """Go every way that messages of cell A go. `hints`: what sends hints from above to the cell."""
    at_top, at_conductor, at_agent = Listener(), Listener(), Listener()
    await above.serve_cells(SCHEDULER, {MayBuild: at_top.take_of})
    await above.serve_cells(SUPER_CONDUCTOR, {CellChanged: at_top.take_of})
    handlers: Handlers = {MayBuild: at_conductor.take, InstancesChanged: at_conductor.take}
    await conductor.serve(cell_conductor(A.uuid), handlers)
    await agent.serve(compute(A.uuid, "host.with.dots"), {ReportHostNow: at_agent.take})

    async def is_answered() -> bool:
        # Servers tell each other of subscriptions in their own time.
        try:
            return (await conductor.call(scheduler_for(A.uuid), QUESTION, timeout=SHORT)).granted
        except Unreachable:
            return False

    await eventually(is_answered, "the scheduler answers the cell")
    assert (A.uuid, QUESTION) in at_top.heard
    await conductor.cast(super_conductor_for(A.uuid), CellChanged(cell=A.uuid))
    await at_top.until((A.uuid, CellChanged(cell=A.uuid)))
    assert (await agent.call(cell_conductor(A.uuid), QUESTION, timeout=LONG)).granted
    await conductor.cast(compute(A.uuid, "host.with.dots"), ReportHostNow())
    await at_agent.until(ReportHostNow())
    await hints.cast(cell_conductor(A.uuid), InstancesChanged())
    await at_conductor.until(InstancesChanged())


async def test_everything_that_is_needed_goes_through_the_accounts(server: NatsServer, opened: Open) -> None:
    above = await opened(url_of(server, None))
    conductor, agent = await opened(url_of(server, A, "conductor")), await opened(url_of(server, A, "compute"))
    await all_works(above, above, conductor, agent)


async def test_schedulers_take_turns_and_one_that_comes_late_is_found(server: NatsServer, opened: Open) -> None:
    conductor = await opened(url_of(server, A, "conductor"))
    # Between accounts the server does not say that nobody serves: the deadline does.
    with pytest.raises(Unreachable):
        await conductor.call(scheduler_for(A.uuid), QUESTION, timeout=SHORT)
    early = asyncio.create_task(conductor.call(scheduler_for(A.uuid), Beat(cell=A.uuid), timeout=LONG))
    listeners = [Listener(), Listener()]
    for listener in listeners:
        handlers: CellHandlers = {MayBuild: listener.take_of, Beat: beat}
        await (await opened(url_of(server, None))).serve_cells(SCHEDULER, handlers)
    for _ in range(40):
        await conductor.call(scheduler_for(A.uuid), QUESTION, timeout=LONG)
    assert sum(len(listener.heard) for listener in listeners) == 40
    assert all(listener.heard for listener in listeners)
    assert (await early).epoch == "e"


async def beat(_cell: CellUuid, _message: Beat, _context: RequestContext | None) -> BeatReply:
    return BeatReply(epoch="e", asserted=True)


def forbidden_subjects(role: CellRole) -> tuple[list[str], list[str]]:
    """Return subjects that the users of cell A may neither publish to nor subscribe to."""
    foreign: list[Address] = [
        SCHEDULER,
        SUPER_CONDUCTOR,
        cell_conductor(B.uuid),
        compute(B.uuid, "h"),
        scheduler_for(B.uuid),
        super_conductor_for(B.uuid),
    ]
    subjects = [subject_of("skep", address) for address in foreign]
    own_above = [subject_of("skep", address(A.uuid)) for address in (scheduler_for, super_conductor_for)]
    publish, subscribe = [*subjects, "$JS.API.INFO"], [*subjects, *own_above, "skep.>", ">", "skep.cell.*.conductor"]
    if role == "compute":
        publish += [*own_above, subject_of("skep", compute(A.uuid, "h"))]
        subscribe += [subject_of("skep", cell_conductor(A.uuid))]
    return publish, subscribe


@pytest.mark.parametrize("role", ["conductor", "compute"])
async def test_a_cell_can_neither_publish_nor_subscribe_what_is_not_its_own(
    server: NatsServer, opened: Open, stack: AsyncExitStack, role: CellRole
) -> None:
    refused: list[str] = []

    async def on_error(error: Exception) -> None:
        refused.append(str(error).lower())

    client: Client = await nats.connect(url_of(server, A, role), error_cb=on_error, allow_reconnect=False)
    stack.push_async_callback(client.close)
    # Someone listens to all of it, in the cell that is not to be heard and above.
    others = [await nats.connect(url_of(server, None)), await nats.connect(url_of(server, B, "conductor"))]
    heard: list[str] = []

    async def hear(message: Any) -> None:
        heard.append(message.subject)

    for other in others:
        stack.push_async_callback(other.close)
    await others[0].subscribe("skep.>", cb=hear)
    await others[1].subscribe(subject_of("skep", cell_conductor(B.uuid)), cb=hear)
    for other in others:
        await other.flush()
    publish, subscribe = forbidden_subjects(role)
    for subject in publish:
        await client.publish(subject, b"x")
    for subject in subscribe:
        await client.subscribe(subject, cb=hear)

    async def all_refused() -> bool:
        return len(refused) >= len(publish) + len(subscribe)

    await eventually(all_refused, "each of them is refused")
    for subject in publish:
        assert any("publish" in line and subject.lower() in line for line in refused), subject
    for subject in subscribe:
        assert any("subscription" in line and f'"{subject.lower()}"' in line for line in refused), subject
    await others[0].publish("skep.scheduler", b"for those above")
    await others[0].flush()
    await client.flush()
    assert set(heard) <= {"skep.scheduler"}, "only what was sent above is heard, and only there"
    assert len(heard) <= 1


async def test_a_wrong_password_and_a_user_of_nobody_are_told_so(server: NatsServer, opened: Open) -> None:
    for user in (user_of(A, "conductor"), "stranger"):
        with pytest.raises(Misconfigured, match="refuses our credentials"):
            await opened(signed_in(server.url, user, "wrong"))


async def test_the_account_above_keeps_states_in_jetstream_and_cells_have_none(
    server: NatsServer, stack: AsyncExitStack
) -> None:
    above = await nats.connect(url_of(server, None))
    stack.push_async_callback(above.close)
    bucket = await above.jetstream().create_key_value(bucket="states")
    await bucket.put("k", b"v")
    assert (await bucket.get("k")).value == b"v"


async def test_a_cell_with_servers_of_its_own_joins_its_account(
    stack: AsyncExitStack, opened: Open, tmp_path: Path
) -> None:
    leaf_port = free_port()
    hub_config = server_config(
        CELLS, PASSWORDS, NatsListening(address="127.0.0.1:-1", leaf_address=f"127.0.0.1:{leaf_port}")
    )
    hub = NatsServer(tmp_path / "hub", jetstream=False, config=hub_config)
    await stack.enter_async_context(hub)
    own_config = cell_server_config(
        A, PASSWORDS, NatsListening(address="127.0.0.1:-1"), f"nats-leaf://127.0.0.1:{leaf_port}"
    )
    own = await stack.enter_async_context(NatsServer(tmp_path / "own", jetstream=False, config=own_config))
    above, hints = await opened(url_of(hub, None)), await opened(url_of(own, A, "above"))
    conductor, agent = await opened(url_of(own, A, "conductor")), await opened(url_of(own, A, "compute"))
    await all_works(above, hints, conductor, agent)
    with pytest.raises(Misconfigured):
        await opened(url_of(own, B, "conductor"))
    # While the shared servers are away, the cell is alone with itself, and finds back.
    hub.kill()
    assert (await agent.call(cell_conductor(A.uuid), QUESTION, timeout=LONG)).granted
    with pytest.raises(Unreachable):
        await conductor.call(scheduler_for(A.uuid), QUESTION, timeout=SHORT)


async def test_with_tls_and_a_certificate_of_our_own(stack: AsyncExitStack, tmp_path: Path) -> None:
    ca, cert, key = tmp_path / "ca.pem", tmp_path / "cert.pem", tmp_path / "key.pem"
    await asyncio.to_thread(make_certificates, tmp_path)
    tls = Tls(cert_file=str(cert), key_file=str(key), ca_file=str(ca), verify=True)
    config = server_config(CELLS, PASSWORDS, NatsListening(address="127.0.0.1:-1", tls=tls))
    server = NatsServer(tmp_path / "nats", jetstream=False, config=config)
    await stack.enter_async_context(server)
    settings = TransportSettings(
        kind="nats", url=url_of(server, A, "conductor"), ca_file=str(ca), cert_file=str(cert), key_file=str(key)
    )
    transport = NatsTransport(settings)
    await transport.open()
    stack.push_async_callback(transport.close)
    await transport.serve(cell_conductor(A.uuid), {ListNamespaces: namespaces})
    nobody = NatsTransport(TransportSettings(kind="nats", url=url_of(server, A, "conductor"), ca_file=str(ca)))
    with pytest.raises((Misconfigured, Unreachable)):
        await nobody.open()
    broken = TransportSettings(kind="nats", url=server.url, ca_file=str(ca), cert_file=str(tmp_path / "absent.pem"))
    with pytest.raises(Misconfigured, match=r"transport\.cert_file"):
        await NatsTransport(broken).open()


async def namespaces(_message: ListNamespaces, _context: RequestContext | None) -> ListNamespacesReply:
    return ListNamespacesReply(namespaces={})


def make_certificates(folder: Path) -> None:
    """Make a CA and a certificate for 127.0.0.1 that it signed, for servers and clients."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    openssl("req", "-x509", "-newkey", "ed25519", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    openssl("req", "-newkey", "ed25519", "-nodes", "-keyout", "key.pem", "-out", "csr.pem", "-subj", "/CN=nats")
    (folder / "ext").write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
    signing = ("x509", "-req", "-in", "csr.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial")
    openssl(*signing, "-out", "cert.pem", "-extfile", "ext", "-days", "2")
