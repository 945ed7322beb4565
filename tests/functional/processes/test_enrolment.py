"""From a token to a host that is used: NATS with an account for each cell, and one of each role beside the agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from skep.cli.main import skep
from skep.config import load
from skep.config.sections import ConductorSettings, Config, SynchronizerSettings, TransportSettings
from skep.database.api import cells as cell_rows
from skep.database.api import enrolments, retired_hosts
from skep.database.api.enrolments import EnrolmentToken
from skep.database.api.retired_hosts import RetiredHost
from skep.database.cell import agents, host_keys, identity
from skep.domain.cells import Cell
from skep.domain.clock import SECOND, Clock
from skep.domain.credentials import new_token
from skep.domain.ids import CELL0, CellUuid, new_uuid
from skep.messages.to_scheduler import GetHostStates
from skep.processes import databases
from skep.processes.api import ApiProcess
from skep.processes.cell_conductor import CellConductorProcess
from skep.processes.compute import ComputeProcess
from skep.processes.databases import Places
from skep.processes.directory import StateDirectory
from skep.processes.process import new_process
from skep.processes.role import Role
from skep.processes.scheduler import SchedulerProcess
from skep.processes.servers.nats import NatsServer
from skep.processes.super_conductor import SuperConductorProcess
from skep.testing.cloud import quick_config
from skep.testing.eventually import eventually
from skep.transport.base import SCHEDULER
from skep.transport.nats import NatsTransport

pytestmark = [pytest.mark.needs_part("nats-server")]

CELL = Cell(uuid=CellUuid(new_uuid()), name="cell1")


async def said(words: tuple[str, ...], environ: Mapping[str, str]) -> Result:
    """Run a command; it is none of the loop's business how long it waits for a server."""
    return await asyncio.to_thread(CliRunner().invoke, skep, list(words), env=dict(environ))


async def output_of(environ: Mapping[str, str], *words: str) -> str:
    result = await said(words, environ)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


async def make_databases(config: Config) -> None:
    places = Places(config, StateDirectory(Path(config.state.directory)))
    cell0 = Cell(uuid=CELL0, name="cell0")
    now = Clock().now()
    api = await databases.open_database("api", places.of("api"), upgrade=True)
    for cell in (cell0, CELL):
        await api.write(partial(cell_rows.add, cell=cell, now=now))
        database = await databases.open_database(cell.name, places.of(cell.name), upgrade=True)
        await database.write(partial(identity.claim, cell=cell, now=now))
        await database.close()
    await api.close()


@dataclass
class Installation:
    """An installation on NATS with accounts: one of each role but compute runs in this loop."""

    config: Config
    environ: dict[str, str]
    roles: dict[str, Role]
    above: NatsTransport
    stack: AsyncExitStack

    @property
    def api_url(self) -> str:
        api = self.roles["api"]
        assert isinstance(api, ApiProcess)
        return api.http.api_url

    async def token(self, uses: int = 1) -> str:
        token, now = new_token(), Clock().now()
        new = EnrolmentToken(
            id=token.id,
            cell=CELL.uuid,
            description="",
            uses=uses,
            uses_left=uses,
            created_at=now,
            created_by="admin",
            expires_at=now + 3600 * SECOND,
        )
        places = Places(self.config, StateDirectory(Path(self.config.state.directory)))
        api = await databases.open_database("api", places.of("api"), upgrade=False)
        assert await api.write(partial(enrolments.add, new=new, token=token))
        await api.close()
        return token.text

    async def enrol(self, state: Path, host: str, token: str) -> Result:
        environ = {"SKEP_STATE__DIRECTORY": str(state), "ENROLMENT_TOKEN": token}
        return await said(("enrol", "--api", self.api_url, "--host", host), environ)

    async def up(self) -> dict[str, bool]:
        reply = await self.above.call(SCHEDULER, GetHostStates())
        return {state.usage.host: state.up for state in reply.hosts}


@pytest.fixture
async def installation(tmp_path: Path) -> AsyncIterator[Installation]:
    state = tmp_path / "state"
    environ = {"SKEP_STATE__DIRECTORY": str(state)}
    base = quick_config()
    base = replace(
        base,
        state=replace(base.state, directory=str(state)),
        api=replace(base.api, port=0),
        identity=replace(base.identity, port=0),
        images=replace(base.images, port=0),
    )
    made = StateDirectory(state)
    made.open()
    made.close()
    await make_databases(base)
    store = str(tmp_path / "store")
    text = await output_of(environ, "nats", "config", "--listen", "127.0.0.1:-1", "--jetstream", store)
    async with AsyncExitStack() as stack:
        nats = NatsServer(tmp_path / "nats", jetstream=False, config=text)
        await stack.enter_async_context(nats)
        above = await output_of(environ, "nats", "url", "above", "--servers", nats.url)
        in_cell = await output_of(environ, "nats", "url", "cell-conductor", "--cell", "cell1", "--servers", nats.url)
        transport = TransportSettings(kind="nats", url=above, public_url=nats.url, accounts=True)
        synchronizer = SynchronizerSettings(backend="nats", url=above)
        top = replace(base, transport=transport, synchronizer=synchronizer)
        bottom = replace(
            top,
            transport=replace(transport, url=in_cell),
            conductor=ConductorSettings(require_enrolment=True, lease_seconds=2.0, resend_seconds=0.3),
        )
        roles: dict[str, Role] = {
            "scheduler": SchedulerProcess(top),
            "cell-conductor": CellConductorProcess(new_process(bottom), "cell1"),
            "super-conductor": SuperConductorProcess(new_process(top)),
            "api": ApiProcess(new_process(top)),
        }
        for role in roles.values():
            await role.start()
            stack.push_async_callback(role.stop)
        probe = NatsTransport(transport)
        await probe.open()
        stack.push_async_callback(probe.close)
        yield Installation(top, environ, roles, probe, stack)


async def compute_of(installation: Installation, state: Path) -> ComputeProcess:
    """Start the agent as its written configuration says."""
    config = load(state / "compute.toml", {}).config
    role = ComputeProcess(new_process(replace(config, compute=replace(config.compute, report_interval=1.0))))
    await role.start()
    installation.stack.push_async_callback(role.stop)
    return role


async def test_an_enrolled_host_is_mapped_and_used_with_no_further_command(
    installation: Installation, tmp_path: Path
) -> None:
    token, state = await installation.token(), tmp_path / "machine"
    for _ in range(2):
        result = await installation.enrol(state, "new.host", token)
        assert result.exit_code == 0, result.output
    assert (state / "compute.toml").stat().st_mode & 0o077 == 0
    assert not (state / "enrolling" / "new.host").exists()
    role = await compute_of(installation, state)

    async def is_up() -> bool:
        return (await installation.up()).get("new.host", False)

    await eventually(is_up, "the host is mapped, has reported and lives")

    async def is_ready() -> bool:
        return not role.reasons()

    await eventually(is_ready, "the agent says that it is ready")
    # Its reports were signed: the conductor of this cell takes nobody who was not enrolled.
    cell = await databases.open_database(
        "cell1", Places(installation.config, StateDirectory(tmp_path / "state")).of("cell1"), upgrade=False
    )
    assert role._made is not None
    assert await cell.read(partial(host_keys.get, node=role._made.agent.node)) is not None
    await cell.close()
    second = await installation.enrol(tmp_path / "another", "another", token)
    assert second.exit_code == 1
    assert "used up" in second.output


async def test_a_host_that_was_not_enrolled_is_not_let_in(installation: Installation, tmp_path: Path) -> None:
    state = tmp_path / "machine"
    assert (await installation.enrol(state, "h1", await installation.token())).exit_code == 0
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    written = (state / "compute.toml").read_text()
    (stranger / "compute.toml").write_text(written.replace(str(state), str(stranger)).replace('"h1"', '"h2"'))
    role = await compute_of(installation, stranger)
    known = await compute_of(installation, state)

    async def is_up() -> bool:
        return (await installation.up()).get("h1", False)

    await eventually(is_up, "the one that was enrolled is used")
    assert not known.reasons()
    assert role.reasons() == ["no conductor of the cell has registered this host yet"]
    assert set(await installation.up()) == {"h1"}


async def test_a_host_that_was_retired_is_let_in_only_when_it_was_enrolled_again(
    installation: Installation, tmp_path: Path
) -> None:
    state = tmp_path / "machine"
    assert (await installation.enrol(state, "h1", await installation.token())).exit_code == 0
    role = await compute_of(installation, state)

    async def is_up() -> bool:
        return (await installation.up()).get("h1", False)

    await eventually(is_up, "the host is used")
    assert role._made is not None
    node = role._made.agent.node
    await role.stop()
    places = Places(installation.config, StateDirectory(tmp_path / "state"))
    cell = await databases.open_database("cell1", places.of("cell1"), upgrade=False)
    api = await databases.open_database("api", places.of("api"), upgrade=False)
    agent = await cell.read(partial(agents.get, node=node))
    assert agent is not None
    retired = RetiredHost(node=node, host="h1", cell=CELL.uuid, process=agent.process, retired_at=1)
    await api.write(partial(retired_hosts.add, new=retired))

    async def is_forgotten() -> bool:
        return not await api.read(retired_hosts.every)

    await eventually(is_forgotten, "the cell has forgotten the host")
    await cell.close()
    await api.close()
    role = await compute_of(installation, state)
    assert role.reasons() == ["no conductor of the cell has registered this host yet"]
    assert await installation.up() == {}
    again = await installation.enrol(state, "h1", await installation.token())
    assert again.exit_code == 0, again.output
    await eventually(is_up, "the host is used again")


async def test_what_is_in_the_way_is_said(installation: Installation, tmp_path: Path) -> None:
    state = tmp_path / "machine"
    state.mkdir()
    (state / "compute.toml").write_text("[compute]\n")
    result = await installation.enrol(state, "h1", await installation.token())
    assert result.exit_code == 2
    assert "was not written by `skep enrol`" in result.output
    result = await installation.enrol(tmp_path / "other", "h1", new_token().text)
    assert result.exit_code == 1
    assert "another installation" in result.output
    assert "(403)" in result.output
    words = ("enrol", "--api", "http://127.0.0.1:1", "--token", "t", "--host", "h")
    result = await said(words, {"SKEP_STATE__DIRECTORY": str(tmp_path / "other")})
    assert result.exit_code == 1
    assert "does not answer" in result.output
