"""A host that was taken over, in a cloud where each host has a NATS user of its own: it reads and changes nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest
import structlog
from nats.aio.client import Client

from skep.compute.conversation import Conversation
from skep.compute.drivers.contents import GuestContents, GuestFile
from skep.compute.drivers.fake import INSIDES
from skep.compute.drivers.fake_inside import GuestInsides
from skep.compute.identity import begin_run
from skep.compute.identity import load as load_identity
from skep.config import load
from skep.config.nats_security import signed_in_by
from skep.contracts.eventually import eventually
from skep.database import opening
from skep.database.api import revoked_nats_users
from skep.database.cell import sessions
from skep.domain.clock import Clock
from skep.domain.errors import Forbidden, Misconfigured
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import Incarnation, InstanceUuid, NodeUuid, new_uuid
from skep.domain.instances import State
from skep.messages.to_cell_conductor import (
    Built,
    Destroyed,
    MayBuild,
    ReadContents,
    RegisterAgent,
    ReportProgress,
)
from skep.processes.directory import StateDirectory
from skep.transport.base import SCHEDULER, SUPER_CONDUCTOR, cell_conductor, compute, scheduler_for
from skep.transport.nats import NatsTransport
from skep.transport.subjects import subject_of
from tests.functional.processes.accounts_cloud import CELL, Installation, compute_of, installed, output_of

pytestmark = [pytest.mark.needs_part("nats-server")]

PASSWORD = "only the guest may know this"
SECRET = "nobody else may read this name"


@pytest.fixture
async def installation(tmp_path: Path) -> AsyncIterator[Installation]:
    async with installed(tmp_path, host_users=True) as installation:
        yield installation


async def enrolled(installation: Installation, tmp_path: Path, *names: str) -> dict[str, Path]:
    token = await installation.token(len(names))
    states = {name: tmp_path / name for name in names}
    for name, state in states.items():
        result = await installation.enrol(state, name, token)
        assert result.exit_code == 0, result.output
    return states


async def host_is_up(installation: Installation, name: str) -> None:
    async def is_up() -> bool:
        return (await installation.up()).get(name, False)

    await eventually(is_up, f"host {name} is used")


class Thief:
    """Has all that stands on a machine, and speaks to NATS as he likes."""

    def __init__(self, installation: Installation, state: Path, host: str) -> None:
        self.directory = state / "hosts" / "cell1" / host
        self.host = host
        self.transport_settings = load(state / "compute.toml", {}).config.transport
        self.credentials = (self.directory / "nats.creds").read_text()
        self.url = installation.nats.url
        self.heard: list[str] = []
        self.refused: list[str] = []

    async def connect(self, stack: AsyncExitStack) -> Client:
        client: Client = await nats.connect(
            self.url, allow_reconnect=False, error_cb=self._note, **signed_in_by(self.credentials)
        )
        stack.push_async_callback(client.close)
        return client

    async def hear(self, message: Any) -> None:
        self.heard.append(message.subject)

    async def _note(self, error: Exception) -> None:
        self.refused.append(str(error).lower())

    async def converse(self, stack: AsyncExitStack) -> Conversation:
        """Return the session of an agent of this host, which says what the thief wants."""
        transport = NatsTransport(self.transport_settings)
        await transport.open()
        stack.push_async_callback(transport.close)
        identity = begin_run(self.directory, self.host)

        async def keep(_key: bytes) -> None:
            return

        conversation = Conversation(transport, CELL.uuid, identity, Incarnation(new_uuid()), keep)
        await transport.serve(compute(CELL.uuid, self.host), conversation.taking(_ignoring()))
        return conversation


def _ignoring() -> dict[type[Any], Any]:
    from skep.messages.to_compute import ReportHostNow

    async def ignore(_message: Any, _context: Any) -> None:
        return

    return {ReportHostNow: ignore}


async def test_a_host_that_was_taken_over_reads_nothing_changes_nothing_and_is_named(
    installation: Installation, tmp_path: Path
) -> None:
    states = await enrolled(installation, tmp_path, "h1", "h2")
    h1 = await compute_of(installation, states["h1"])
    await host_is_up(installation, "h1")
    assert h1._made is not None
    node1 = h1._made.agent.node
    thief = Thief(installation, states["h2"], "h2")
    raw = await thief.connect(installation.stack)
    of_h1, conductors = subject_of("skep", compute(CELL.uuid, "h1")), subject_of("skep", cell_conductor(CELL.uuid))
    inbox = load(states["h1"] / "compute.toml", {}).config.transport.inbox
    for subject in (of_h1, conductors, f"{inbox}.>", "_INBOX.>", "_R_.>", "skep.>", ">"):
        await raw.subscribe(subject, cb=thief.hear)
        await raw.subscribe(subject, queue="skep", cb=thief.hear)
    uuid = await installation.ask_for_server(SECRET)
    server = await installation.until_active(uuid)
    assert server.host == "h1"
    others = [subject_of("skep", address) for address in (SCHEDULER, SUPER_CONDUCTOR, scheduler_for(CELL.uuid))]
    for subject in (of_h1, f"{inbox}.1", *others):
        await raw.publish(subject, b"x")
    await raw.flush()

    async def all_refused() -> bool:
        return len(thief.refused) >= 14 + 5

    await eventually(all_refused, "each of them is refused")
    assert thief.heard == []

    # What NATS lets him say, to his conductors, they do not believe of another host.
    with structlog.testing.capture_logs() as logged:
        for claim in forged(uuid, "h1"):
            with pytest.raises(Forbidden, match="no proof"):
                await said_plainly(installation, thief, claim)
        identity = await identity_of(installation, node1)
        with pytest.raises(Forbidden, match="not signed"):
            await said_plainly(installation, thief, RegisterAgent(identity=identity))
        session = await thief.converse(installation.stack)
        await session.call(RegisterAgent(identity=identity), 10.0)
        for claim in forged(uuid, "h1"):
            with pytest.raises(Forbidden, match="claims to be 'h1'"):
                await session.call(claim, 10.0)
        own = ReadContents(instance=uuid, attempt=1, host="h2")
        assert (await session.call(own, 10.0)).sealed is None, "what is for the host of the server is for no other"
        await session.cast(ReportProgress(host="h1"))

        async def named() -> bool:
            return any(
                line["event"] == "agent refused" and line["host"] == "h2" and "h1" in line["reason"] for line in logged
            )

        await eventually(named, "the log names the host that was taken over")
    found = await installation.server(uuid)
    assert found is not None
    assert (found.state, found.host, found.attempt) == (State.ACTIVE, "h1", 1)
    assert [guest.instance for guest in await h1._made.driver.guests()] == [uuid]
    # The servers of NATS name him, too.
    users = json.loads(await output_of(installation.environ, "nats", "users", "--format", "json"))
    user = next(one["user"] for one in users if one["host"] == "h2")
    refusals = [line for line in installation.nats.log.read_text().splitlines() if "Violation" in line]
    assert refusals
    assert all(user in line for line in refusals)


def forged(uuid: InstanceUuid, host: str) -> tuple[Any, ...]:
    return (
        Destroyed(instance=uuid, host=host, attempts=(1,), up_to=9),
        Built(instance=uuid, attempt=1, host=host, launched_at=1),
        MayBuild(instance=uuid, attempt=1, host=host),
        ReadContents(instance=uuid, attempt=1, host=host),
    )


async def said_plainly(installation: Installation, thief: Thief, message: Any) -> None:
    transport = NatsTransport(thief.transport_settings)
    await transport.open()
    try:
        await transport.call(cell_conductor(CELL.uuid), message)
    finally:
        await transport.close()


async def identity_of(installation: Installation, node: NodeUuid) -> AgentIdentity:
    cell = await opening.open_database("cell1", installation.places.of("cell1"), upgrade=False)
    try:
        found = await cell.read(partial(sessions.of_node, node=node))
        assert found is not None
        return found.identity
    finally:
        await cell.close()


async def test_a_revoked_host_is_out_until_it_is_enrolled_again(installation: Installation, tmp_path: Path) -> None:
    states = await enrolled(installation, tmp_path, "h1", "h2")
    await compute_of(installation, states["h1"])
    await host_is_up(installation, "h1")
    thief = Thief(installation, states["h2"], "h2")
    raw = await thief.connect(installation.stack)
    identity = load_identity(thief.directory)
    assert identity is not None
    # Only its row is written here, as when its compute service is deleted: the super conductor tells the servers.
    revoked = revoked_nats_users.Revoked(node=identity.node, host="h2", cell=CELL.uuid, revoked_at=Clock().now())
    api = await opening.open_database("api", installation.places.of("api"), upgrade=False)
    await api.write(partial(revoked_nats_users.add, new=revoked))
    await api.close()

    async def is_out() -> bool:
        return raw.is_closed

    await eventually(is_out, "the servers have ended its connection")
    with pytest.raises(Misconfigured, match="refuses our credentials"):
        await NatsTransport(thief.transport_settings).open()
    await host_is_up(installation, "h1")
    again = await installation.enrol(states["h2"], "h2", await installation.token())
    assert again.exit_code == 0, again.output
    await compute_of(installation, states["h2"])
    await host_is_up(installation, "h2")


async def test_password_and_files_reach_a_guest_on_a_machine_that_has_no_key(
    installation: Installation, tmp_path: Path
) -> None:
    states = await enrolled(installation, tmp_path, "h1")
    await compute_of(installation, states["h1"])
    await host_is_up(installation, "h1")
    assert not (states["h1"] / "keys").exists()
    heard: list[bytes] = []

    async def hear(message: Any) -> None:
        heard.append(message.data)

    for role in ("above", "cell-conductor"):
        credentials = (tmp_path / f"{role}.creds").read_text()
        client = await nats.connect(installation.nats.url, allow_reconnect=False, **signed_in_by(credentials))
        installation.stack.push_async_callback(client.close)
        subjects = ("skep.>", "_INBOX.>") if role == "above" else (subject_of("skep", cell_conductor(CELL.uuid)),)
        for subject in (*subjects, "_INBOX.>"):
            await client.subscribe(subject, cb=hear)
        await client.flush()
    state = Path(installation.config.state.directory)
    contents = GuestContents(admin_password=PASSWORD, files=(GuestFile(path="/etc/motd", contents=b"of a user"),))
    sealed = StateDirectory(state).seal().encrypt(msgspec.json.encode(contents))
    with structlog.testing.capture_logs() as logged:
        uuid = await installation.ask_for_server("one", sealed)
        await installation.until_active(uuid)
    inside = states["h1"] / "hosts" / "cell1" / "h1" / INSIDES
    assert GuestInsides(inside).read(uuid) == contents
    assert heard
    assert not any(PASSWORD.encode() in data for data in heard)
    assert PASSWORD not in repr(logged)
    files = [path for root in (state, states["h1"]) for path in root.rglob("*") if path.is_file()]
    assert [path for path in files if PASSWORD.encode() in path.read_bytes()] == [inside / f"{uuid}.json"]
