"""A list takes as many statements for many things as for few: none asks once for each thing that it shows."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import httpx

from skep.api.microversions import MAXIMUM
from skep.api.routes import ROUTES
from skep.contracts.neighbours.served import SteppedClock, neighbours, token
from skep.database import Connection
from skep.database.api.network_tables import ports
from skep.database.cell import interfaces
from skep.domain.ids import InstanceUuid
from skep.domain.vifs import Vif, VifAddress, VifGroup, VifSubnet
from skep.standalone.networks.of_servers import EmbeddedNetworks
from skep_lab.compute_api.api import PROJECT
from skep_lab.compute_api.servers import CELL1, CELL2, ServersUnderTest, servers_under_test
from tests.functional.servers.test_migrations import begin
from tests.functional.standalone.test_domains_and_groups import PASSWORD, Administered
from tests.support.public_keys import ssh_key
from tests.support.work import Watch, watching

FEW, MANY = 2, 5
"""Of each kind of thing."""
QUERIES = ("", "?all_tenants=1", "?all_projects=1", "?limit=5", "?detailed=1", "?ip=10.0")
BELOW = (
    *("/servers/{server}/os-instance-actions", "/servers/{server}/tags", "/servers/{server}/metadata"),
    *("/servers/{server}/migrations", "/flavors/f0/os-extra_specs"),
    f"/os-simple-tenant-usage/{PROJECT}",
)
"""Lists of what belongs to one thing."""
IDENTITY = (
    *("/domains", "/projects", "/users", "/groups", "/roles", "/services", "/endpoints", "/auth/projects"),
    *("/role_assignments", "/role_assignments?include_names=1", "/role_assignments?effective=1&include_names=1"),
    *("/groups/{group}/users", "/users/{user}/groups", "/users/{user}/projects", "/role_inferences"),
    *(
        "/projects/{project}/users/{user}/roles",
        "/users/{admin}/application_credentials",
        "/users/{admin}/access_rules",
    ),
)
IMAGES = (
    "/images",
    "/images?limit=100&sort=name:asc",
    "/images?visibility=shared&member_status=all",
    "/images/{image}/members",
)
NETWORKS = (
    *("/networks", "/subnets", "/ports", "/security-groups", "/security-group-rules", "/routers", "/floatingips"),
    *("/ports?network_id={network}", "/ports?fixed_ips=subnet_id%3D{subnet}", "/networks?tags=t", "/quotas"),
)


async def _make(cloud: ServersUnderTest, first: int, last: int) -> None:
    """Make flavors, groups with servers in them, servers in both cells, aggregates and key pairs, so many of each."""
    for number in range(first, last):
        flavor = {"name": f"f{number}", "ram": 64, "vcpus": 1, "disk": 1, "id": f"f{number}"}
        await cloud.good("POST", "/flavors", {"flavor": {**flavor, "os-flavor-access:is_public": False}}, token="admin")
        await cloud.good("POST", "/os-aggregates", {"aggregate": {"name": f"a{number}"}}, token="admin")
        group = {"name": f"g{number}", "policy": "soft-affinity"}
        made = await cloud.good("POST", "/os-server-groups", {"server_group": group}, version=64)
        hints = {"group": made["server_group"]["id"]}
        server, cell = await cloud.create(hints=hints), CELL1 if number % 2 else CELL2
        await cloud.build(server, cell)
        told = {InstanceUuid(server): (_interface(2 * number), _interface(2 * number + 1))}
        await cloud.services.cells[cell].write(partial(interfaces.tell, vifs=told, now=1))
        await cloud.create(metadata={"k": "v"}, tags=["t"], version=52)
        await begin(cloud, number, CELL1 if number % 2 else CELL2)
        key = {"name": f"k{number}", "public_key": ssh_key(f"k{number}")}
        await cloud.good("POST", "/os-keypairs", {"keypair": key}, token="admin")
        await cloud.good("POST", "/flavors/f0/os-extra_specs", {"extra_specs": {f"s{number}": "1"}}, token="admin")


def _interface(number: int) -> Vif:
    """Return an interface on a network of its own, with an address and a group."""
    addresses = (VifAddress(f"10.0.0.{number + 2}", (f"203.0.113.{number + 2}",)),)
    return Vif(
        id=f"port-{number}",
        mac_address="fa:16:3e:00:00:01",
        network_id=f"network-{number}",
        network_name=f"n{number}",
        mtu=1450,
        subnets=(VifSubnet(id=f"subnet-{number}", cidr="10.0.0.0/24", version=4, addresses=addresses),),
        groups=(VifGroup(f"group-{number}", "web"),),
    )


async def _add_below(cloud: ServersUnderTest, server: str, first: int, last: int) -> None:
    """Give a server tags, metadata and actions, so many of each."""
    for number in range(first, last):
        await cloud.good("PUT", f"/servers/{server}/tags/t{number}", version=26)
        await cloud.good("PUT", f"/servers/{server}/metadata/k{number}", {"meta": {f"k{number}": "v"}})
        for action in ("lock", "unlock"):
            await cloud.good("POST", f"/servers/{server}/action", {action: None})


async def _statements(cloud: ServersUnderTest, server: str, watch: Watch) -> dict[str, int]:
    """Return how many statements each list takes, the second time that it is asked for."""
    counted: dict[str, int] = {}
    lists = {(route.path, route.until) for route in ROUTES if route.method == "GET" and "{" not in route.path}
    lists |= {(path.format(server=server), MAXIMUM) for path in BELOW}
    asked = {
        (path, query, version) for path, until in lists for query in QUERIES for version in {until, min(until, 74)}
    }
    for path, query, version in sorted(asked):
        headers = {"X-Auth-Token": "admin", "OpenStack-API-Version": f"compute 2.{version}"}
        await cloud.client.get(f"/v2.1{path}{query}", headers=headers)
        watch.begin()
        answer = await cloud.client.get(f"/v2.1{path}{query}", headers=headers)
        work = watch.end()
        if answer.status_code == 200:
            counted[f"2.{version} {path}{query}"] = work.statements
    return counted


def _grown(few: dict[str, int], many: dict[str, int]) -> dict[str, tuple[int, int]]:
    assert few.keys() == many.keys()
    assert sum(few.values()) > len(few) / 2, "statements are counted"
    return {path: (few[path], many[path]) for path in few if many[path] > few[path]}


async def test_statements_do_not_grow_with_what_is_listed(tmp_path: Path) -> None:
    with watching() as watch:
        async with servers_under_test(tmp_path, routes=ROUTES) as cloud:
            server = await cloud.create()
            await cloud.build(server)
            await _make(cloud, 0, FEW)
            await _add_below(cloud, server, 0, FEW)
            few = await _statements(cloud, server, watch)
            await _make(cloud, FEW, MANY)
            await _add_below(cloud, server, FEW, MANY)
            many = await _statements(cloud, server, watch)
    newest = {"/servers", "/servers/detail", "/flavors/detail", "/os-server-groups", "/os-aggregates", "/os-migrations"}
    newest |= {path.format(server=server) for path in BELOW}
    assert {f"2.{MAXIMUM} {path}" for path in newest} <= few.keys()
    assert _grown(few, many) == {}


async def test_addresses_of_a_hundred_servers_take_no_more_statements_than_those_of_one(tmp_path: Path) -> None:
    quotas = {"quota_set": {"instances": -1, "cores": -1, "ram": -1}}
    lists = ("/servers/detail", "/servers/detail?ip=10.0", "/servers/detail?sort_key=display_name", "/servers")
    with watching() as watch:
        async with servers_under_test(tmp_path, routes=ROUTES) as cloud:
            await cloud.good("PUT", f"/os-quota-sets/{PROJECT}", quotas, token="admin")
            taken: list[dict[str, int]] = []
            for first, last in ((0, 1), (1, 100)):
                for number in range(first, last):
                    server = await cloud.create()
                    await cloud.build(server, CELL1)
                    told = {InstanceUuid(server): (_interface(2 * number), _interface(2 * number + 1))}
                    await cloud.services.cells[CELL1].write(partial(interfaces.tell, vifs=told, now=1))
                listed = (await cloud.good("GET", "/servers/detail"))["servers"]
                assert [len(one["addresses"]) for one in listed] == [2] * last
                counted = {}
                for path in lists:
                    watch.begin()
                    await cloud.good("GET", path)
                    counted[path] = watch.end().statements
                taken.append(counted)
    one, hundred = taken
    assert min(one.values()) > 0
    assert one == hundred


class _Both:
    """The embedded services, as an admin asks them."""

    def __init__(self, identity: httpx.AsyncClient, images: httpx.AsyncClient, admin: str) -> None:
        self._clients = {"/v3": identity, "/v2": images}
        self._headers = {"X-Auth-Token": admin}
        self.hands = Administered(identity, admin)
        self.ids: dict[str, str] = {}

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = await self._clients[path[:3]].request(method, path, json=body, headers=self._headers)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def make(self, first: int, last: int) -> None:
        """Make so many of each noun, and let the first of each have so many others."""
        hands, ids = self.hands, self.ids
        [admin] = (await self.ask("GET", "/v3/users?name=admin"))["users"]
        ids["admin"] = admin["id"]
        for number in range(first, last):
            await hands.make("domain", name=f"d{number}")
            made = {
                "user": await hands.make("user", name=f"u{number}", password=PASSWORD),
                "project": await hands.make("project", name=f"p{number}"),
                "group": await hands.make("group", name=f"g{number}"),
                "image": (await self.ask("POST", "/v2/images", {"name": f"i{number}", "tags": ["t"], "k": "v"}))["id"],
            }
            role = await hands.make("role", name=f"r{number}")
            ids = self.ids = {**made, **ids}
            for user, group, project in (
                (made["user"], ids["group"], made["project"]),
                (ids["user"], made["group"], ids["project"]),
            ):
                await hands.done("PUT", f"/groups/{group}/users/{user}")
                await hands.done("PUT", f"/projects/{project}/users/{user}/roles/{role}")
                await hands.done("PUT", f"/projects/{project}/groups/{group}/roles/{role}")
            await hands.done("PUT", f"/projects/{made['project']}/users/{ids['user']}/roles/{role}")
            await self.ask("POST", f"/v2/images/{ids['image']}/members", {"member": made["project"]})
            rule = {"service": "compute", "method": "GET", "path": f"/v2.1/servers/{number}"}
            credential = {"name": f"c{number}", "access_rules": [rule]}
            path = f"/v3/users/{ids['admin']}/application_credentials"
            await self.ask("POST", path, {"application_credential": credential})

    async def statements(self, watch: Watch) -> dict[str, int]:
        """Return how many statements each list takes, the second time that it is asked for."""
        counted: dict[str, int] = {}
        for path in (*(f"/v3{one}" for one in IDENTITY), *(f"/v2{one}" for one in IMAGES)):
            await self.ask("GET", path.format(**self.ids))
            watch.begin()
            await self.ask("GET", path.format(**self.ids))
            counted[path] = watch.end().statements
        return counted


class _Networks:
    """The embedded network service, as an admin asks it."""

    def __init__(self, client: httpx.AsyncClient, admin: str) -> None:
        self._client = client
        self._headers = {"X-Auth-Token": admin}
        self._ids: dict[str, str] = {}

    async def _ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = await self._client.request(method, f"/v2.0{path}", json=body, headers=self._headers)
        assert answer.is_success, answer.text
        return next(iter(answer.json().values())) if answer.content else None

    async def _make(self, kind: str, **said: Any) -> str:
        made = await self._ask("POST", f"/{kind.replace('_', '-')}s", {kind: said})
        return str(made["id"])

    async def make(self, first: int, last: int) -> None:
        """Make so many networks, each with a subnet, ports, a router, a floating address and a group."""
        for number in range(first, last):
            outside = await self._make("network", name=f"o{number}", **{"router:external": True})
            await self._make("subnet", network_id=outside, cidr=f"198.51.{number}.0/24", ip_version=4)
            network = await self._make("network", name=f"n{number}")
            subnet = await self._make("subnet", network_id=network, cidr=f"10.{number}.0.0/24", ip_version=4)
            self._ids = {"network": network, "subnet": subnet, **self._ids}
            await self._ask("PUT", f"/networks/{network}/tags/t")
            group = await self._make("security_group", name=f"g{number}")
            await self._make("security_group_rule", security_group_id=group, direction="ingress", remote_group_id=group)
            router = await self._make("router", name=f"r{number}", external_gateway_info={"network_id": outside})
            await self._ask("PUT", f"/routers/{router}/add_router_interface", {"subnet_id": subnet})
            port = await self._make("port", network_id=network, security_groups=[group])
            await self._make("port", network_id=self._ids["network"])
            await self._make("floatingip", floating_network_id=outside, port_id=port)

    async def statements(self, watch: Watch) -> dict[str, int]:
        """Return how many statements each list takes, the second time that it is asked for."""
        counted: dict[str, int] = {}
        for path in NETWORKS:
            await self._ask("GET", path.format(**self._ids))
            watch.begin()
            await self._ask("GET", path.format(**self._ids))
            counted[path] = watch.end().statements
        return counted


async def test_nor_those_of_networks(tmp_path: Path) -> None:
    with watching() as watch:
        async with (
            neighbours(tmp_path, SteppedClock()) as cloud,
            cloud.identity_client() as identity,
            cloud.networks_client() as client,
        ):
            networks = _Networks(client, await token(identity, "admin", "admin"))
            await networks.make(0, FEW)
            few = await networks.statements(watch)
            await networks.make(FEW, MANY)
            many = await networks.statements(watch)
    assert _grown(few, many) == {}


def _bind_all(connection: Connection) -> None:
    """Have all ports that are not the service's own be those of a server of one host."""
    plain = ports.c.device_owner == ""
    connection.execute(ports.update().where(plain).values(server="server", binding_host_id="host1"))


async def test_nor_those_of_what_a_host_brings(tmp_path: Path) -> None:
    counted = []
    with watching() as watch:
        clock = SteppedClock()
        async with (
            neighbours(tmp_path, clock) as cloud,
            cloud.identity_client() as identity,
            cloud.networks_client() as client,
        ):
            networks = _Networks(client, await token(identity, "admin", "admin"))
            of_hosts = EmbeddedNetworks(cloud.networks.settings, cloud.database, clock)
            for first, last in ((0, FEW), (FEW, MANY)):
                await networks.make(first, last)
                await cloud.database.write(_bind_all)
                found = await of_hosts.look_at_host("host1", "192.0.2.1")
                watch.begin()
                assert await of_hosts.look_at_host("host1", "192.0.2.1") == found
                counted.append(watch.end().statements)
                assert found is not None
                assert (len(found.networks.segments), len(found.networks.routers)) == (last, last)
                plugged = [port for segment in found.networks.segments for port in segment.ports]
                assert len(plugged) == 2 * last
    assert 0 < counted[0] == counted[1]


async def test_nor_those_of_identity_and_images(tmp_path: Path) -> None:
    with watching() as watch:
        async with (
            neighbours(tmp_path, SteppedClock()) as cloud,
            cloud.identity_client() as identity,
            cloud.images_client() as images,
        ):
            both = _Both(identity, images, await token(identity, "admin", "admin"))
            await both.make(0, FEW)
            few = await both.statements(watch)
            await both.make(FEW, MANY)
            many = await both.statements(watch)
    assert _grown(few, many) == {}
