"""Security groups as old clients ask the compute API for them: the network service has them, the words are Nova's."""

from __future__ import annotations

from typing import Any

from skep.api.requests import Answer, ApiRequest
from skep.api.schemas.fields import is_true
from skep.api.views.security_groups import group_view, rule_view
from skep.domain.errors import BadRequest
from skep.neighbours.networks.base import GroupOfServer, WantedRule

ALL_PORTS = (1, 65_535)
ANY = -1
"""Of a type or a code of ICMP."""
MOST_OF_ICMP = 255


async def index(request: ApiRequest) -> Answer:
    """`GET /os-security-groups`: by project and name."""
    of_all = is_true(request.first("all_tenants"))
    found = await request.services.networks.list_groups(request.context, request.token, of_all=of_all)
    found.sort(key=lambda one: (one.project_id, one.name, one.id))
    return Answer({"security_groups": [group_view(one) for one in request.part(found)]})


async def show(request: ApiRequest) -> Answer:
    """`GET /os-security-groups/{group_id}`."""
    found = await request.services.networks.group(request.params["group_id"], request.context, request.token)
    return Answer({"security_group": group_view(found)})


async def create(request: ApiRequest) -> Answer:
    """`POST /os-security-groups`."""
    said = request.body["security_group"]
    networks = request.services.networks
    made = await networks.create_group(said["name"], said["description"], request.context, request.token)
    return Answer({"security_group": group_view(made)})


async def update(request: ApiRequest) -> Answer:
    """`PUT /os-security-groups/{group_id}`."""
    group_id, said = request.params["group_id"], request.body["security_group"]
    networks = request.services.networks
    changed = await networks.update_group(group_id, said["name"], said["description"], request.context, request.token)
    return Answer({"security_group": group_view(changed)})


async def delete(request: ApiRequest) -> Answer:
    """`DELETE /os-security-groups/{group_id}`."""
    await request.services.networks.delete_group(request.params["group_id"], request.context, request.token)
    return Answer()


async def create_rule(request: ApiRequest) -> Answer:
    """`POST /os-security-group-rules`."""
    wanted = _rule(request.body["security_group_rule"])
    made, group = await request.services.networks.create_rule(wanted, request.context, request.token)
    return Answer({"security_group_rule": _shown(group, made)})


async def delete_rule(request: ApiRequest) -> Answer:
    """`DELETE /os-security-group-rules/{rule_id}`."""
    await request.services.networks.delete_rule(request.params["rule_id"], request.context, request.token)
    return Answer()


def _shown(group: GroupOfServer, rule_id: str) -> dict[str, Any]:
    return next(rule_view(group, rule) for rule in group.rules if rule.id == rule_id)


def _rule(said: dict[str, Any]) -> WantedRule:
    """Return the rule that a body means.

    Raises BadRequest where something is missing: only a rule of a group may leave out protocol and ports.
    """
    protocol, remote = said.get("ip_protocol") or "", said.get("group_id")
    first, last = said.get("from_port"), said.get("to_port")
    if remote is not None and first is None and last is None:
        first, last = {"ICMP": (ANY, ANY), "TCP": ALL_PORTS, "UDP": ALL_PORTS}.get(protocol.upper(), (None, None))
    whole = protocol != "" and first is not None and last is not None
    if not whole and remote is None:
        raise BadRequest("Not enough parameters to build a valid rule.")
    return WantedRule(
        group=said["parent_group_id"].lower(),
        protocol=protocol.lower() if whole else None,
        ports=_range(protocol, first, last) if first is not None and last is not None and whole else (None, None),
        cidr=_cidr(said.get("cidr")) if remote is None else None,
        remote_group=None if remote is None else remote.lower(),
    )


def _range(protocol: str, first: int, last: int) -> tuple[int | None, int | None]:
    """Return a range as rules have it. Raises BadRequest for one that the protocol does not have."""
    name = protocol.upper()
    if name == "ICMP":
        if max(first, last) > MOST_OF_ICMP:
            raise BadRequest(f"Invalid port range {first}:{last}. For ICMP, the type:code must be valid")
        return (None if first == ANY else first, None if last == ANY else last)
    if name not in ("TCP", "UDP"):
        raise BadRequest(f"Invalid IP protocol {protocol[:80]}.")
    if first > last:
        raise BadRequest(f"Invalid port range {first}:{last}. Former value cannot be greater than the later")
    if first < 1:
        raise BadRequest(f"Invalid port range {first}:{last}. Valid {name} ports should be between 1-65535")
    return first, last


def _cidr(said: str | None) -> str:
    """Return the addresses that a rule names. Raises BadRequest for all of them that do not say so."""
    if not said:
        return "0.0.0.0/0"
    address, _, prefix = said.partition("/")
    if prefix == "0" and address.strip("0.:"):
        raise BadRequest(f"Bad prefix for network in cidr {said}")
    return said
