"""An installation on NATS with an account for each cell: one of each role, and machines that become hosts of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from click.testing import CliRunner, Result
from msgspec.structs import replace

from skep.cli.main import skep
from skep.config import load
from skep.config.sections import ConductorSettings, Config, SynchronizerSettings, TransportSettings
from skep.contracts.cloud import PROJECT, SMALL, USER, quick_config
from skep.contracts.eventually import eventually
from skep.database import opening
from skep.database.api import build_requests, enrolments
from skep.database.api import cells as cell_rows
from skep.database.api.enrolments import EnrolmentToken
from skep.database.cell import identity, instances
from skep.domain.cells import Cell
from skep.domain.clock import SECOND, Clock
from skep.domain.context import RequestContext
from skep.domain.credentials import new_token
from skep.domain.ids import CELL0, CellUuid, InstanceUuid, new_request_id, new_uuid
from skep.domain.instances import Instance, State
from skep.domain.request_specs import RequestSpec
from skep.domain.states import SETTLED
from skep.messages.to_scheduler import GetHostStates
from skep.messages.to_super_conductor import ScheduleAndBuildInstances
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
from skep.transport.base import SCHEDULER, SUPER_CONDUCTOR
from skep.transport.nats import NatsTransport

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
    api = await opening.open_database("api", places.of("api"), upgrade=True)
    for cell in (cell0, CELL):
        await api.write(partial(cell_rows.add, cell=cell, now=now))
        database = await opening.open_database(cell.name, places.of(cell.name), upgrade=True)
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
    nats: NatsServer
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
        api = await opening.open_database("api", places.of("api"), upgrade=False)
        assert await api.write(partial(enrolments.add, new=new, token=token))
        await api.close()
        return token.text

    async def enrol(self, state: Path, host: str, token: str) -> Result:
        environ = {"SKEP_STATE__DIRECTORY": str(state), "ENROLMENT_TOKEN": token}
        return await said(("enrol", "--api", self.api_url, "--host", host), environ)

    @property
    def places(self) -> Places:
        return Places(self.config, StateDirectory(Path(self.config.state.directory)))

    async def ask_for_server(self, name: str, secrets: bytes | None = None) -> InstanceUuid:
        """Store a request as the API does, and wake the super conductor."""
        now, uuid = Clock().now(), InstanceUuid(new_uuid())
        context = RequestContext(request_id=new_request_id(), project_id=PROJECT, user_id=USER, roles=("member",))
        spec = RequestSpec(project_id=PROJECT, user_id=USER, flavor=SMALL)
        server = Instance(
            uuid=uuid,
            project_id=PROJECT,
            user_id=USER,
            name=name,
            hostname="server",
            flavor=SMALL,
            created_at=now,
            request_id=context.request_id,
        )
        new = build_requests.NewRequest(
            context=context, instances=(server,), spec=spec, min_count=1, now=now, secrets=secrets
        )
        api = await opening.open_database("api", self.places.of("api"), upgrade=False)
        await api.write(partial(build_requests.store, new=new))
        await api.close()
        await self.above.cast(SUPER_CONDUCTOR, ScheduleAndBuildInstances(request_id=context.request_id))
        return uuid

    async def server(self, uuid: InstanceUuid) -> Instance | None:
        cell = await opening.open_database("cell1", self.places.of("cell1"), upgrade=False)
        try:
            return await cell.read(partial(instances.get, uuid=uuid))
        finally:
            await cell.close()

    async def until_active(self, uuid: InstanceUuid) -> Instance:
        async def settled() -> Instance | None:
            found = await self.server(uuid)
            return found if found is not None and found.state in SETTLED else None

        found = await eventually(settled, "the server is built")
        assert found is not None
        assert found.state is State.ACTIVE, found.fault
        return found

    async def up(self) -> dict[str, bool]:
        reply = await self.above.call(SCHEDULER, GetHostStates())
        return {state.usage.host: state.up for state in reply.hosts}


@asynccontextmanager
async def installed(tmp_path: Path, *, host_users: bool = False) -> AsyncIterator[Installation]:
    """Run the roles above the hosts; with `host_users` each host gets a NATS user of its own."""
    state = tmp_path / "state"
    environ = {"SKEP_STATE__DIRECTORY": str(state)}
    base = quick_config()
    base = replace(
        base,
        state=replace(base.state, directory=str(state)),
        api=replace(base.api, port=0),
        identity=replace(base.identity, port=0),
        images=replace(base.images, port=0),
        networks=replace(base.networks, port=0),
    )
    made = StateDirectory(state)
    made.open()
    made.close()
    await make_databases(base)
    if host_users:
        environ["SKEP_TRANSPORT__HOST_USERS"] = "true"
    more = ("--host-users", "--accounts-dir", str(tmp_path / "accounts")) if host_users else ()
    store = str(tmp_path / "store")
    text = await output_of(environ, "nats", "config", "--listen", "127.0.0.1:-1", "--jetstream", store, *more)
    async with AsyncExitStack() as stack:
        nats = NatsServer(tmp_path / "nats", jetstream=False, config=text)
        await stack.enter_async_context(nats)
        above, in_cell = await (with_credentials if host_users else with_passwords)(environ, nats.url, tmp_path)
        environ["SKEP_TRANSPORT__URL"] = nats.url
        top = replace(base, transport=above, synchronizer=SynchronizerSettings(backend="nats", url=above.url))
        bottom = replace(
            top,
            transport=in_cell,
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
        probe = NatsTransport(above)
        await probe.open()
        stack.push_async_callback(probe.close)
        yield Installation(top, environ, roles, probe, nats, stack)


async def with_passwords(
    environ: Mapping[str, str], url: str, _folder: Path
) -> tuple[TransportSettings, TransportSettings]:
    """Return how the level above and the conductors of the cell sign in to accounts with users of their own."""
    above = await output_of(environ, "nats", "url", "above", "--servers", url)
    in_cell = await output_of(environ, "nats", "url", "cell-conductor", "--cell", "cell1", "--servers", url)
    transport = TransportSettings(kind="nats", url=above, public_url=url, accounts=True)
    return transport, replace(transport, url=in_cell)


async def with_credentials(
    environ: Mapping[str, str], url: str, folder: Path
) -> tuple[TransportSettings, TransportSettings]:
    """Return how they sign in by credentials, where each host has a user."""
    for role, more in (("above", ()), ("cell-conductor", ("--cell", "cell1"))):
        (folder / f"{role}.creds").write_text(await output_of(environ, "nats", "credentials", role, *more))
    transport = TransportSettings(kind="nats", url=url, host_users=True, credentials_file=str(folder / "above.creds"))
    return transport, replace(transport, credentials_file=str(folder / "cell-conductor.creds"))


async def compute_of(installation: Installation, state: Path) -> ComputeProcess:
    """Start the agent as its written configuration says."""
    config = load(state / "compute.toml", {}).config
    role = ComputeProcess(new_process(replace(config, compute=replace(config.compute, report_interval=1.0))))
    await role.start()
    installation.stack.push_async_callback(role.stop)
    return role
