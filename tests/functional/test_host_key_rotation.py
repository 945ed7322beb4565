"""The key of a host is replaced: its agent brings the next one, guests run on, and the one before is refused."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from skep.cli.main import skep
from skep.compute import identity
from skep.contracts.cloud import Cloud, running_cloud
from skep.contracts.eventually import eventually
from skep.database.cell import host_keys
from skep.domain.context import RequestContext
from skep.domain.errors import SkepError
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import Incarnation, NodeUuid, ProjectId, UserId, new_request_id, new_uuid
from skep.domain.instances import State
from skep.domain.sessions import new_exchange_key, public_half
from skep.domain.signatures import Signer
from skep.messages.to_cell_conductor import RegisterAgent
from skep.transport.base import cell_conductor
from tests.support.bus import OpenBus

HOST = "cell1-host1"


def rotate(*words: str) -> Result:
    return CliRunner().invoke(skep, ["keys", "rotate", "host", "--host", HOST, *words])


async def bound(cloud: Cloud) -> bytes | None:
    node = identity.load_or_mint(cloud.directory.host("cell1", HOST), HOST).node
    return await cloud.plane.databases.cells["cell1"].read(partial(host_keys.get, node=node))


async def test_the_next_key_follows_at_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_cloud(tmp_path, cells=1, hosts=1, transport=OpenBus()) as cloud:
        monkeypatch.setenv("SKEP_STATE__DIRECTORY", str(cloud.directory.root))
        folder = cloud.directory.host("cell1", HOST)
        [uuid] = await cloud.create(1)
        [server] = await cloud.settled([uuid])
        assert (server.state, server.host) == (State.ACTIVE, HOST)
        guests = await cloud.guests()
        before, old = await bound(cloud), identity.load_or_mint(folder, HOST)
        assert rotate().exit_code == 0
        assert json.loads(rotate("--json").output)["steps"] == ["add"]
        made = identity.load_or_mint(folder, HOST)
        assert (made.seed, bool(made.next_seed)) == (old.seed, True)
        assert "restart it" in rotate("--check").output
        await cloud.restart()

        async def taken() -> bool:
            return rotate("--check").exit_code == 0

        await eventually(taken, "the agent has brought its next key")
        now = identity.load_or_mint(folder, HOST)
        assert (now.seed, now.next_seed) == (made.next_seed, b"")
        after = await bound(cloud)
        assert after not in (before, None)
        assert await cloud.guests() == guests
        assert (await cloud.settled([uuid]))[0].state is State.ACTIVE
        with pytest.raises(SkepError, match="key"):
            await register_with(cloud, old)
        assert list(await refused(cloud)) == [old.node]
        [another] = await cloud.settled(await cloud.create(1))
        assert another.state is State.ACTIVE
        await cloud.restart()
        [third] = await cloud.settled(await cloud.create(1))
        assert third.state is State.ACTIVE
        assert await refused(cloud) == {}


async def refused(cloud: Cloud) -> dict[NodeUuid, int]:
    return await cloud.plane.databases.cells["cell1"].read(host_keys.refused)


async def register_with(cloud: Cloud, old: identity.HostIdentity) -> None:
    cell = next(cell for cell in cloud.plane.cells.values() if not cell.is_cell0)
    signer, challenge, exchange = Signer(old.seed, cell.uuid), b"challenge", public_half(new_exchange_key())
    run = AgentIdentity(node=old.node, host=HOST, process=Incarnation(new_uuid()))
    number = old.runs + 10**9
    asked = RegisterAgent(
        identity=run,
        public_key=signer.public_key,
        signature=signer.registration(run),
        number=number,
        exchange_key=exchange,
        challenge=challenge,
        run_signature=signer.run(run, number, exchange, challenge),
    )
    context = RequestContext(request_id=new_request_id(), project_id=ProjectId("p"), user_id=UserId("u"))
    await cloud.plane.transport.call(cell_conductor(cell.uuid), asked, timeout=5.0, context=context)


def test_which_host_is_meant_must_be_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP_STATE__DIRECTORY", str(tmp_path))
    for host in ("h1", "h2"):
        identity.load_or_mint(tmp_path / "hosts" / "cell1" / host, host)
    said = CliRunner().invoke(skep, ["keys", "rotate", "host"])
    assert (said.exit_code, "there are: h1, h2" in said.output) == (2, True)
