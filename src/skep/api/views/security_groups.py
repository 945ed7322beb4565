"""How security groups are shown, in the words of nova-network."""

from __future__ import annotations

from typing import Any

from skep.domain.networking import SecurityGroupRule
from skep.neighbours.networks.base import GroupOfServer


def group_view(group: GroupOfServer) -> dict[str, Any]:
    """Return all that the API says of a group: the rules of what goes out are not known to it."""
    return {
        "id": group.id,
        "name": group.name,
        "description": group.description,
        "tenant_id": group.project_id,
        "rules": [rule_view(group, rule) for rule in group.rules if rule.direction == "ingress"],
    }


def rule_view(group: GroupOfServer, rule: SecurityGroupRule) -> dict[str, Any]:
    """Show a rule in the words of nova-network, which knew only what comes in."""
    ports = (rule.port_range_min, rule.port_range_max)
    if ports == (None, None) and rule.protocol is not None:
        ports = (1, 65_535) if rule.protocol in ("tcp", "udp") else (-1, -1)
    shown: dict[str, Any] = {
        "id": rule.id,
        "parent_group_id": group.id,
        "ip_protocol": rule.protocol,
        "from_port": ports[0],
        "to_port": ports[1],
        "group": {},
        "ip_range": {},
    }
    if rule.remote_group_id is not None:
        shown["group"] = {"tenant_id": group.project_id, "name": group.names.get(rule.remote_group_id, "")}
    else:
        shown["ip_range"] = {"cidr": rule.remote_ip_prefix or ("0.0.0.0/0" if rule.ethertype == "IPv4" else "::/0")}
    return shown
