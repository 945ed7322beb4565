"""Networks as old clients ask the compute API for them (Nova's API reference: what was given up with 2.36)."""

from __future__ import annotations

from skep.api.schemas.fields import Anything, Array, Either, Integer, String, fields
from skep.api.schemas.shared import ANY_TEXT, COUNT, INTEGER_OR_NULL, TEXT, TEXT_OR_NULL, asked, shown
from skep.api.schemas.validation import AnswerShape, Body, Parameter, Query

LAST_OF_ACTIONS = 43
"""Microversion until which the actions that give addresses to servers are in the compute API."""

LIST = Query(
    (
        Parameter(name="limit", type=COUNT),
        Parameter(name="offset", type=COUNT),
        Parameter(name="all_tenants", type=ANY_TEXT),
    )
)
"""`GET /os-security-groups`."""

_ID = String(format="uuid")
_PROPERTY = String(max=255)

GROUP = Body(
    fields(
        asked(
            "security_group",
            fields(asked("name", _PROPERTY, required=True), asked("description", _PROPERTY, required=True)),
            required=True,
        )
    )
)
"""A group that is made or changed."""

RULE = Body(
    fields(
        asked(
            "security_group_rule",
            fields(
                asked("parent_group_id", _ID, required=True),
                asked("group_id", String(format="uuid", nullable=True)),
                asked("ip_protocol", String(max=255, nullable=True)),
                asked("from_port", Integer(min=-1, max=65_535, nullable=True)),
                asked("to_port", Integer(min=-1, max=65_535, nullable=True)),
                asked("cidr", String(max=64, nullable=True)),
            ),
            required=True,
        )
    )
)
"""`POST /os-security-group-rules`."""

_RULE = fields(
    shown("id", TEXT),
    shown("parent_group_id", TEXT),
    shown("ip_protocol", TEXT_OR_NULL),
    shown("from_port", INTEGER_OR_NULL),
    shown("to_port", INTEGER_OR_NULL),
    shown("group", Anything()),
    shown("ip_range", Anything()),
)
_GROUP = fields(
    shown("id", TEXT),
    shown("name", TEXT),
    shown("description", TEXT),
    shown("tenant_id", TEXT),
    shown("rules", Array(item=_RULE)),
)
GROUP_SHOWN = AnswerShape(fields(shown("security_group", _GROUP)))
GROUPS_LISTED = AnswerShape(fields(shown("security_groups", Array(item=_GROUP))))
RULE_SHOWN = AnswerShape(fields(shown("security_group_rule", _RULE)))

TAKE = Body(fields(asked("pool", String(max=255, nullable=True))))
"""`POST /os-floating-ips`."""

_FLOATING = fields(
    shown("id", TEXT),
    shown("ip", TEXT),
    shown("pool", TEXT),
    shown("fixed_ip", TEXT_OR_NULL),
    shown("instance_id", TEXT_OR_NULL),
)
FLOATING_SHOWN = AnswerShape(fields(shown("floating_ip", _FLOATING)))
FLOATING_LISTED = AnswerShape(fields(shown("floating_ips", Array(item=_FLOATING))))
POOLS = AnswerShape(fields(shown("floating_ip_pools", Array(item=fields(shown("name", TEXT))))))

NULLS = (
    "cidr",
    "netmask",
    "gateway",
    "broadcast",
    "dns1",
    "dns2",
    "cidr_v6",
    "gateway_v6",
    "netmask_v6",
)
"""Keys of a network of which nova-network knew, and which are null now."""
NULLS_OF_ADMINS = (
    "created_at",
    "updated_at",
    "deleted_at",
    "deleted",
    "injected",
    "bridge",
    "vlan",
    "vpn_public_address",
    "vpn_public_port",
    "vpn_private_address",
    "dhcp_start",
    "project_id",
    "host",
    "bridge_interface",
    "multi_host",
    "priority",
    "rxtx_base",
    "mtu",
    "dhcp_server",
    "enable_dhcp",
    "share_address",
)
"""Likewise, for admins alone."""

_NETWORK = fields(
    shown("id", TEXT),
    shown("label", TEXT),
    *(shown(key, TEXT_OR_NULL) for key in NULLS),
    *(shown(key, TEXT_OR_NULL, required=False) for key in NULLS_OF_ADMINS),
)
NETWORK_SHOWN = AnswerShape(fields(shown("network", _NETWORK)))
NETWORKS_LISTED = AnswerShape(fields(shown("networks", Array(item=_NETWORK))))

_OF_PROJECT = fields(shown("id", TEXT), shown("label", TEXT), shown("cidr", TEXT))
OF_PROJECT_SHOWN = AnswerShape(fields(shown("network", _OF_PROJECT)))
OF_PROJECT_LISTED = AnswerShape(fields(shown("networks", Array(item=_OF_PROJECT))))

_ADDRESS = Either(types=(String(format="ipv4"), String(format="ipv6")))
_address = asked("address", _ADDRESS, required=True)

ADD_FLOATING = Body(fields(asked("addFloatingIp", fields(_address, asked("fixed_address", _ADDRESS)), required=True)))
REMOVE_FLOATING = Body(fields(asked("removeFloatingIp", fields(_address), required=True)))
ADD_FIXED = Body(fields(asked("addFixedIp", fields(asked("networkId", _ID, required=True)), required=True)))
REMOVE_FIXED = Body(fields(asked("removeFixedIp", fields(_address), required=True)))
