"""Ports of the embedded network service that went back with the API database: a server that is found again has its own
again before another server is given its addresses, or it is said by name what it has lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.database.api import recovery as above
from skep.database.cell import recovery as below
from skep.database.engine import Database
from tests.functional.networks.test_servers_with_addresses import Tenant, addresses
from tests.support.going_back import copied, put_back

ADDRESS = "10.1.0.77"
EVERY = ("api", "cell0", "cell1")
SAME = ("id", "mac_address", "fixed_ips", "security_groups", "device_owner", "device_id", "binding:vnic_type")


@dataclass(frozen=True)
class Restored:
    """A cloud whose databases are of before a server was created, and what that server was."""

    demo: Tenant
    admin: ComputeSession
    server: Any
    port: Any
    network: str

    async def ask_admin(self, method: str, path: str, body: object = None) -> Any:
        """Ask the admin API for what must succeed."""
        url = f"{self.demo.cloud.api_url.removesuffix('/v2.1')}/admin/v1{path}"
        answer = await self.admin.client.request(method, url, json=body, headers={"X-Auth-Token": self.admin.token})
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def unknown(self) -> Any:
        """Return the guest of the server, which no database knows, once its host has told of it."""

        async def listed() -> Any:
            found = (await self.ask_admin("GET", "/recovery"))["recovery"]
            mine = [one for one in found["decisions"] if one["server"] == self.server["id"]]
            return mine[0]["guests"][0] if mine and not found["databases"] else None

        return await eventually(listed, "its guest is listed")

    async def keep(self) -> str:
        """Make the guest the server; return what the operator is told."""
        host = (await self.unknown())["host"]
        said = await self.ask_admin("POST", f"/recovery/servers/{self.server['id']}", {"keep": host})
        kept, outcome = f"attempt 1 on {host} is the server", str(said["server"]["outcome"])
        assert outcome.startswith(kept)
        return outcome.removeprefix(kept).removeprefix("; ")

    async def has_its_port(self) -> bool:
        found = await self.demo.ports(self.server["id"])
        return [{name: one[name] for name in SAME} for one in found] == [{name: self.port[name] for name in SAME}]

    async def lost_its_address(self) -> str:
        """Wait until the server has none; return what its owner reads of that."""

        async def is_told() -> bool:
            shown = await self.demo.server(self.server["id"])
            return shown is not None and addresses(shown) == {}

        await eventually(is_told, "the row says that the server has no address")
        answer = await self.demo.compute.ask("GET", f"/servers/{self.server['id']}/os-instance-actions")
        told = {one["action"]: one["message"] for one in answer.json()["instanceActions"]}
        return str(told["detach_interface"])

    async def differs(self) -> bool:
        """Whether the audit finds other interfaces or bindings than the row of the server says."""
        found = (await self.ask_admin("GET", "/audit"))["audit"]["differences"]
        return any(one["kind"] in ("interfaces_differ", "bindings_differ") for one in found)


@asynccontextmanager
async def restored(
    tmp_path: Path, names: Sequence[str] = EVERY, *, held: bool = False, closed: bool = False
) -> AsyncIterator[Restored]:
    """Run a cloud with databases of before a server was created; `held`: when another port still had its address.

    `closed`: its port is the user's and has no groups, so nothing goes in or out.
    """
    root, back = tmp_path / "now", tmp_path / "back"
    async with (
        serving_cloud(http_config(root), cells=1, hosts=1) as cloud,
        signed_in(cloud, "demo", "demo") as compute,
    ):
        demo = Tenant(cloud, compute)
        network = await demo.network("10.1.0.0/24")
        await demo.networks("POST", "security-groups", {"security_group": {"name": "web"}})
        wanted = {"uuid": network["id"], **({"fixed_ip": ADDRESS} if held else {})}
        said = {"network_id": network["id"], "fixed_ips": [{"ip_address": ADDRESS}]}
        before = await demo.networks("POST", "ports", {"port": said}) if held else None
        with copied(cloud.plane.databases, tmp_path / "copies") as copies:
            backup = {name: copies[name].files[0] for name in names}
        if before is not None:
            await demo.networks("DELETE", f"ports/{before['id']}")
        if closed:
            said = {"network_id": network["id"], "security_groups": []}
            wanted = {"port": (await demo.networks("POST", "ports", {"port": said}))["id"]}
        server = await demo.built([wanted], name="after", security_groups=[{"name": "web"}])
        [port] = await demo.ports(server["id"])
    put_back(root / "state", backup, back / "state")
    for name in names:
        database = Database(back / "state/db" / f"{name}.db")
        begin = above.begin if name == "api" else below.begin
        await database.write(partial(begin, seen=None, reason="restored", now=1))
        await database.close()
    async with (
        serving_cloud(http_config(back), cells=1, hosts=1) as cloud,
        signed_in(cloud, "demo", "demo") as compute,
        signed_in(cloud) as admin,
    ):
        yield Restored(Tenant(cloud, compute), admin, server, port, network["id"])


async def test_a_kept_server_has_its_port_before_its_address_is_given_again(tmp_path: Path) -> None:
    async with restored(tmp_path) as back:
        assert await back.keep() == ""
        assert await back.has_its_port()
        other = await back.demo.built([{"uuid": back.network}])
        kept = await back.demo.settled(back.server["id"])
        assert addresses(kept) == addresses(back.server)
        assert not {*addresses(other)["mine"]} & {*addresses(kept)["mine"]}
        assert not await back.differs()
        await back.demo.delete(back.server["id"])


async def test_an_address_that_was_given_again_is_named_to_operator_and_owner(tmp_path: Path) -> None:
    async with restored(tmp_path) as back:
        await back.unknown()
        other = await back.demo.built([{"uuid": back.network}])
        assert addresses(other) == addresses(back.server), "the search for free addresses went back, too"
        [taker] = await back.demo.ports(other["id"])
        [address] = addresses(other)["mine"]
        why = f"nterface {back.port['id']} ({address}) is lost: another port has {address}"
        assert await back.keep() == f"i{why} (port {taker['id']} of server {other['id']})"
        assert await back.lost_its_address() == f"I{why}."
        assert not await back.differs()
        assert addresses(await back.demo.server(other["id"])) == addresses(other)


async def test_a_port_without_groups_stays_closed(tmp_path: Path) -> None:
    async with restored(tmp_path, ["api"], closed=True) as back:
        await eventually(back.has_its_port, "the port is there again")
        assert back.port["security_groups"] == []
        [port] = await back.demo.ports(back.server["id"])
        assert port["port_security_enabled"]


async def test_a_server_that_its_cell_knows_has_its_port_again_by_itself(tmp_path: Path) -> None:
    async with restored(tmp_path, ["api"]) as back:
        await eventually(back.has_its_port, "the port is there again")
        assert addresses(await back.demo.settled(back.server["id"])) == addresses(back.server)
        assert not await back.differs()


async def test_its_owner_is_told_where_another_port_has_its_address(tmp_path: Path) -> None:
    async with restored(tmp_path, ["api"], held=True) as back:
        why = f"Interface {back.port['id']} ({ADDRESS}) is lost: another port has {ADDRESS}."
        assert await back.lost_its_address() == why
        assert not await back.differs()
