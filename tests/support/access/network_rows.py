"""Rows of the matrix of the network service: every route, and who has the right to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import httpx

from skep.domain.ids import new_uuid
from tests.support.access.matrix import Row, Thing

STRANGERS = dict.fromkeys(("without a token", "with a token that is none"), 200)
SERVICE = {"service": 200}
"""A service looks, like a reader."""
WITHOUT_PROJECT = {f"system{whose}": 400 for whose in ("", " of foreign", " of missing")}
"""An admin of the system owns nothing: what he makes needs a project."""

PATHS = {
    "network": "networks",
    "subnet": "subnets",
    "port": "ports",
    "security_group": "security-groups",
    "security_group_rule": "security-group-rules",
    "router": "routers",
    "floatingip": "floatingips",
}


def network_rows(things: Mapping[str, Thing], project: Thing) -> list[Row]:
    """Return all rows of the network service."""
    rows = [
        *_documents(),
        *(row for member in PATHS for row in _of_kind(member, things[member])),
        *_made(things),
        *_routers(things),
        *_bindings(things["port"]),
        *_of_projects(project),
    ]
    return [dataclasses.replace(row, service="networks") for row in rows]


def _documents() -> Iterator[Row]:
    yield Row(method="GET", path="/", right="token", but=STRANGERS)
    yield Row(method="GET", path="/v2.0", right="token", but=STRANGERS)
    yield Row(method="GET", path="/v2.0/extensions", right="reader", but=SERVICE)
    yield Row(method="GET", path="/v2.0/service-providers", right="reader", but=SERVICE)
    alias = Thing("router", "none")
    path = "/v2.0/extensions/{alias}"
    yield Row(method="GET", path=path, right="reader", thing=alias, fill={"alias": alias}, but=_service(alias))


def _service(thing: Thing) -> dict[str, int]:
    """Return what a service hears that only looks."""
    foreign = {} if thing.foreign is None else {"service of foreign": 404}
    return {"service": 200, "service of missing": 404, **foreign}


def _of_kind(member: str, thing: Thing) -> Iterator[Row]:
    every, one = f"/v2.0/{PATHS[member]}", f"/v2.0/{PATHS[member]}/{{id}}"
    row = partial(Row, thing=thing, fill={"id": thing})
    looks = partial(row, method="GET", right="reader", but=_service(thing))
    yield Row(method="GET", path=every, right="reader", but=SERVICE)
    yield Row(method="GET", path=every, right="reader", query="tags=tag&fields=id&sort_key=name", but=SERVICE)
    yield looks(path=one)
    yield row(method="PUT", path=one, right="member", body={member: {"description": "new"}})
    yield row(method="DELETE", path=one, right="member", served=204)
    yield looks(path=f"{one}/tags")
    yield row(method="PUT", path=f"{one}/tags", right="member", body={"tags": ["new"]})
    yield row(method="DELETE", path=f"{one}/tags", right="member", served=204)
    tag = partial(Row, path=f"{one}/tags/{{tag}}", thing=thing, fill={"id": thing, "tag": "tag"})
    yield tag(method="GET", right="reader", served=204, but={**_service(thing), "service": 204})
    yield tag(method="PUT", right="member", served=201)
    yield tag(method="DELETE", right="member", served=204)


def _made(things: Mapping[str, Thing]) -> Iterator[Row]:
    make = partial(Row, method="POST", right="member", served=201, but=WITHOUT_PROJECT)
    for member in ("network", "security_group", "router"):
        yield make(path=f"/v2.0/{PATHS[member]}", body={member: {"name": "new"}})
    network, group = things["network"], things["security_group"]
    outside = {"floating_network_id": things["outside"].own}
    yield make(path="/v2.0/floatingips", body={"floatingip": outside})
    subnet = {"network_id": network, "ip_version": 4, "cidr": "10.9.0.0/24"}
    yield make(path="/v2.0/subnets", body={"subnet": subnet}, thing=network)
    yield make(path="/v2.0/ports", body={"port": {"network_id": network}}, thing=network)
    rule = {"security_group_id": group, "direction": "ingress", "protocol": "udp"}
    yield make(path="/v2.0/security-group-rules", body={"security_group_rule": rule}, thing=group)
    for member, field in (("network", "shared"), ("network", "router:external")):
        body = {member: {"name": "new", field: True}}
        yield Row(method="POST", path="/v2.0/networks", right="admin", body=body, served=201, but=WITHOUT_PROJECT)
    bound = {"port": {"network_id": network, "binding:host_id": "host"}}
    yield Row(
        method="POST",
        path="/v2.0/ports",
        right="admin",
        body=bound,
        thing=network,
        served=201,
        but=WITHOUT_PROJECT,
    )


def _routers(things: Mapping[str, Thing]) -> Iterator[Row]:
    router = things["router"]
    put = partial(Row, method="PUT", right="member", thing=router, fill={"id": router})
    interface = {"subnet_id": things["subnet"].own}
    yield put(path="/v2.0/routers/{id}/add_router_interface", body=interface)
    yield put(path="/v2.0/routers/{id}/remove_router_interface", body=interface, served=404)
    for name in ("add_extraroutes", "remove_extraroutes"):
        yield put(path=f"/v2.0/routers/{{id}}/{name}", body={"router": {"routes": []}})


def _bindings(port: Thing) -> Iterator[Row]:
    """Only an admin binds a port to a second host; the ports of these rows have none."""
    every, one = "/v2.0/ports/{id}/bindings", "/v2.0/ports/{id}/bindings/{host}"
    row = partial(Row, right="admin", thing=port, fill={"id": port, "host": "host"})
    said = {"binding": {"host": "host"}}
    yield row(method="GET", path=every)
    yield row(method="POST", path=every, body=said, served=201)
    yield row(method="GET", path=one, served=404)
    yield row(method="PUT", path=one, body={"binding": {"profile": {}}}, served=404)
    yield row(method="DELETE", path=one, served=404)
    yield row(method="PUT", path=f"{one}/activate", served=404)


def _of_projects(project: Thing) -> Iterator[Row]:
    row = partial(Row, thing=project, fill={"project_id": project})
    hidden = frozenset({403})
    service = {"service": 200, "service of foreign": 403, "service of missing": 403}
    yield Row(method="GET", path="/v2.0/quotas", right="admin")
    for path in ("", "/default", "/details", "/details.json"):
        quotas = f"/v2.0/quotas/{{project_id}}{path}"
        yield row(method="GET", path=quotas, right="reader", missing=200, hidden=hidden, but=service)
    quota = row(method="PUT", path="/v2.0/quotas/{project_id}", right="admin", missing=200, hidden=hidden)
    yield dataclasses.replace(quota, body={"quota": {"network": 7}})
    yield dataclasses.replace(quota, method="DELETE", served=204, missing=204)
    topology = row(method="GET", path="/v2.0/auto-allocated-topology/{project_id}", right="member", hidden=hidden)
    yield dataclasses.replace(topology, missing=200)
    yield dataclasses.replace(topology, right="reader", query="fields=dry-run", missing=200, but=service)
    yield dataclasses.replace(topology, method="DELETE", served=204, missing=204)


async def network_things(networks: httpx.AsyncClient, tokens: Mapping[str, str], other: str) -> dict[str, Thing]:
    """Make things of two projects, whose members have these tokens: `demo` and `other`, and return them by kind."""
    outside = await _made_one(networks, tokens["admin"], "network", name="outside", **{"router:external": True})
    await _made_one(networks, tokens["admin"], "subnet", network_id=outside, ip_version=4, cidr="203.0.113.0/24")
    own, foreign = [await _things_of(networks, tokens[name], name, outside) for name in ("demo", other)]
    things = {member: Thing(own[member], new_uuid(), foreign[member]) for member in PATHS}
    return {**things, "outside": Thing(outside, new_uuid())}


async def _things_of(networks: httpx.AsyncClient, token: str, name: str, outside: str) -> dict[str, str]:
    make = partial(_made_one, networks, token)
    network = await make("network", name=name)
    joined = await make("network", name=name)
    group = await make("security_group", name=name)
    found: dict[str, str] = {
        "network": network,
        "subnet": await make("subnet", name=name, network_id=joined, ip_version=4, cidr="10.0.0.0/24"),
        "port": await make("port", name=name, network_id=joined, fixed_ips=[]),
        "security_group": group,
        "security_group_rule": await make(
            "security_group_rule", name=name, security_group_id=group, direction="ingress", protocol="tcp"
        ),
        "router": await make("router", name=name),
        "floatingip": await make("floatingip", name=name, floating_network_id=outside),
    }
    for member, one in found.items():
        answer = await networks.put(f"/v2.0/{PATHS[member]}/{one}/tags/tag", headers={"X-Auth-Token": token})
        assert answer.status_code == 201, answer.text
    return found


async def _made_one(networks: httpx.AsyncClient, token: str, member: str, **fields: Any) -> str:
    answer = await networks.post(f"/v2.0/{PATHS[member]}", json={member: fields}, headers={"X-Auth-Token": token})
    assert answer.status_code == 201, answer.text
    return str(answer.json()[member]["id"])
