"""Things that a cloud has, for requests that are to get past a look-up: random ids alone only ever find nothing.

The first users and projects are not among them: a run that disabled its own caller would only be told 401 from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import httpx

from skep.contracts.eventually import eventually
from skep.contracts.loopback import plain_client
from skep.processes.all_in_one import AllInOneCloud

Json: TypeAlias = dict[str, Any]
Known: TypeAlias = Mapping[str, list[str]]
"""Name of a parameter of the path, or of a field of a body -> values that there are."""

EACH = 4
"""Things of one kind: requests delete some."""
NEW = "compute 2.95"
BYTES = {"Content-Type": "application/octet-stream"}


async def known(cloud: AllInOneCloud, token: str) -> dict[str, Known]:
    """Make things in a cloud, and return those of each service."""
    async with plain_client(cloud.api_url) as client:
        client.headers.update({"X-Auth-Token": token, "OpenStack-API-Version": NEW})
        made = _Made(client, cloud)
        images = [await made.image(f"fuzzed-{number}") for number in range(EACH)]
        flavors = [one["id"] for one in (await made.get(f"{cloud.api_url}/flavors"))["flavors"]]
        hosts = [one["host"] for one in (await made.get(f"{made.root}/admin/v1/hosts"))["hosts"]]
        projects = [await made.named("project", f"fuzzed-{number}") for number in range(EACH)]
        compute = {
            "flavor_id": flavors,
            "image_id": images,
            "name": [await made.key_pair(f"fuzzed-{number}") for number in range(EACH)],
            "aggregate_id": [await made.aggregate(f"fuzzed-{number}") for number in range(EACH)],
            "group_id": [await made.group(f"fuzzed-{number}") for number in range(EACH)],
            "id": [await made.server(f"fuzzed-{number}", images[0], flavors[0]) for number in range(EACH)],
            "host": hosts,
            "project": projects,
            "key": ["fuzzed"],
            "tag": ["fuzzed"],
            "imageRef": images,
            "flavorRef": flavors,
        }
        identity = {
            "user_id": [await made.named("user", f"fuzzed-{number}") for number in range(EACH)],
            "group_id": [await made.named("group", f"fuzzed-{number}") for number in range(EACH)],
            "role_id": [await made.named("role", f"fuzzed-{number}") for number in range(EACH)],
            "domain_id": [await made.named("domain", f"fuzzed-{number}") for number in range(EACH)],
            "prior_role_id": [one["id"] for one in (await made.get(f"{cloud.identity_url}/roles"))["roles"]],
            "project_id": projects,
        }
        identity["implied_role_id"] = identity["prior_role_id"]
        await made.until_built(compute["id"])
        return {
            "compute": compute,
            "identity": identity,
            "networks": await made.networks(projects),
            "images": {"image_id": images, "member_id": projects, "tag": ["fuzzed"]},
            "admin": {
                "name": ["cell1"],
                "host": hosts,
                "id": compute["id"],
                "flavor": flavors,
                "image": images,
                "cell": ["cell1"],
            },
        }


OF_PATHS = frozenset({"id", "key", "name", "tag"})
"""In bodies these are names of what is made."""
_SCHEMAS = "#/components/schemas/"
_SENT = "Sent"
"""Begins the names of schemas of what is sent."""
ODD = ["nothing", "00000000-0000-4000-8000-000000000000", "-1", "a/b", "\u00fc"]


def with_known(document: Json, values: Known) -> Json:
    """Return a document whose parameters and fields have these values, or odd ones; requests that break it have others.

    How a caller proves who he is is left out: it would be drawn as well.
    """
    fields = {name: found for name, found in values.items() if name not in OF_PATHS}
    paths = {path: _of_path(item, values, fields) for path, item in document["paths"].items()}
    components = {key: value for key, value in document["components"].items() if key != "securitySchemes"}
    schemas = components["schemas"]
    sent = {_SENT + name: _known_fields(_sent(schema), fields) for name, schema in schemas.items()}
    return {**document, "paths": paths, "components": {**components, "schemas": schemas | sent}, "security": []}


def _of_path(item: Json, values: Known, fields: Known) -> Json:
    parameters = [
        {**one, "schema": _one_of(values[one["name"]])} if one["name"] in values else one for one in item["parameters"]
    ]
    found: Json = {"parameters": parameters}
    for method, operation in item.items():
        if method != "parameters":
            found[method] = {**operation}
            if "requestBody" in operation:
                found[method]["requestBody"] = _known_fields(_sent(operation["requestBody"]), fields)
    return found


def _sent(value: Any) -> Any:
    """Let what is sent refer to schemas of its own: answers are judged by those that say nothing of known values."""
    if isinstance(value, list):
        return [_sent(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: inner.replace(_SCHEMAS, _SCHEMAS + _SENT) if key == "$ref" and isinstance(inner, str) else _sent(inner)
        for key, inner in value.items()
    }


def _known_fields(value: Any, values: Known) -> Any:
    """Let what has these names in schemas have these values."""
    if isinstance(value, list):
        return [_known_fields(one, values) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: {
            name: _one_of(values[name]) if name in values else _known_fields(schema, values)
            for name, schema in inner.items()
        }
        if key == "properties" and isinstance(inner, dict)
        else _known_fields(inner, values)
        for key, inner in value.items()
    }


def _one_of(values: list[str]) -> Json:
    return {"enum": [*values, *ODD]}


class _Made:
    """Makes things by the APIs of a cloud. Raises httpx.HTTPStatusError where one refuses."""

    def __init__(self, client: httpx.AsyncClient, cloud: AllInOneCloud) -> None:
        self._client = client
        self._cloud = cloud
        self.root = cloud.api_url.removesuffix("/v2.1")

    async def get(self, url: str) -> Json:
        """Read something."""
        answer = await self._client.get(url)
        answer.raise_for_status()
        found: Json = answer.json()
        return found

    async def _post(self, url: str, body: Json) -> Json:
        answer = await self._client.post(url, json=body)
        answer.raise_for_status()
        made: Json = answer.json()
        return made

    async def named(self, noun: str, name: str) -> str:
        """Make something of the identity service."""
        made = await self._post(f"{self._cloud.identity_url}/{noun}s", {noun: {"name": name}})
        return str(made[noun]["id"])

    async def image(self, name: str) -> str:
        """Make an image with a few bytes."""
        images = f"{self._cloud.images_url.removesuffix('/v2')}/v2/images"
        made = await self._post(images, {"name": name, "container_format": "bare", "disk_format": "raw"})
        stored = await self._client.put(f"{images}/{made['id']}/file", content=b"bytes", headers=BYTES)
        stored.raise_for_status()
        return str(made["id"])

    async def key_pair(self, name: str) -> str:
        """Make a key pair, with a public key that is Skep's to make no longer."""
        pair = {"name": name, "type": "ssh", "public_key": PUBLIC_KEY}
        return str((await self._post("/os-keypairs", {"keypair": pair}))["keypair"]["name"])

    async def aggregate(self, name: str) -> str:
        """Make an aggregate."""
        return str((await self._post("/os-aggregates", {"aggregate": {"name": name}}))["aggregate"]["id"])

    async def group(self, name: str) -> str:
        """Make a server group."""
        group = {"name": name, "policy": "affinity"}
        return str((await self._post("/os-server-groups", {"server_group": group}))["server_group"]["id"])

    async def server(self, name: str, image: str, flavor: str) -> str:
        """Begin a server."""
        server = {"name": name, "imageRef": image, "flavorRef": flavor, "networks": "none"}
        return str((await self._post("/servers", {"server": server}))["server"]["id"])

    async def of_networks(self, path: str, **fields: object) -> str:
        """Make something of the network service."""
        member = path.removesuffix("s").replace("-", "_")
        made = await self._post(f"{self._cloud.networks_url}/v2.0/{path}", {member: fields})
        return str(made[member]["id"])

    async def networks(self, projects: list[str]) -> Known:
        """Make things of each kind of the network service, and return what refers to them."""
        outside = await self.of_networks("networks", name="outside", **{"router:external": True})
        await self.of_networks("subnets", network_id=outside, ip_version=4, cidr="203.0.113.0/24")
        made: dict[str, list[str]] = {}
        for number in range(EACH):
            network = await self.of_networks("networks", name=f"fuzzed-{number}")
            subnet = await self.of_networks("subnets", network_id=network, ip_version=4, cidr="10.0.0.0/24")
            group = await self.of_networks("security-groups", name=f"fuzzed-{number}")
            found = {
                "network_id": network,
                "subnet_id": subnet,
                "port_id": await self.of_networks("ports", network_id=network),
                "security_group_id": group,
                "rule": await self.of_networks("security-group-rules", security_group_id=group, direction="ingress"),
                "router": await self.of_networks("routers", name=f"fuzzed-{number}"),
                "floatingip": await self.of_networks("floatingips", floating_network_id=outside),
            }
            for name, one in found.items():
                made.setdefault(name, []).append(one)
        return {
            **made,
            "id": [one for several in made.values() for one in several],
            "floating_network_id": [outside],
            "remote_group_id": made["security_group_id"],
            "ip_address": ["10.0.0.7", "10.0.0.1", "2001:db8::7"],
            "cidr": ["10.1.0.0/24", "2001:db8::/64", "10.0.0.0/8"],
            "project_id": projects,
            "tag": ["fuzzed"],
            "alias": ["router"],
        }

    async def until_built(self, servers: list[str]) -> None:
        """Wait for servers."""

        async def built() -> bool:
            found = [(await self.get(f"{self._cloud.api_url}/servers/{one}"))["server"]["status"] for one in servers]
            return all(status != "BUILD" for status in found)

        await eventually(built, "the servers are built")


PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDlh5Zd2hyQkPvkqv8pN1oUqB1bX2gCq2GqQ2sGJt0aS fuzzed"
