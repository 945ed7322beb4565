"""Tables of the embedded network service.

Times are microseconds since the epoch. Addresses that are given out are 32 hexadecimal digits (IPv4 ones begin with
zeros), so that their order as texts is their order as numbers.
"""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.api.metadata import json_bytes, metadata
from skep.database.partial_index import where

BOUND_TWICE = where("other_bindings <> X'5b5d'", "other_bindings <> '\\x5b5d'")
"""The condition of ports that are bound to several hosts, as few are at a time."""


def _resource(name: str, *columns: sa.schema.SchemaItem) -> sa.Table:
    """Declare a table of what a project owns."""
    return sa.Table(
        name,
        metadata,
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("project_id", sa.Text, nullable=False, index=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("revision_number", sa.Integer, nullable=False),
        *columns,
    )


networks = _resource(
    "networks",
    sa.Column("admin_state_up", sa.Boolean, nullable=False),
    sa.Column("shared", sa.Boolean, nullable=False),
    sa.Column("external", sa.Boolean, nullable=False),
    sa.Column("is_default", sa.Boolean, nullable=False),
    sa.Column("mtu", sa.Integer, nullable=False),
    sa.Column("port_security_enabled", sa.Boolean, nullable=False),
)
"""`is_default`: the external network that topologies made of themselves reach the outside by."""

subnets = _resource(
    "subnets",
    sa.Column("network_id", sa.ForeignKey("networks.id"), nullable=False, index=True),
    sa.Column("ip_version", sa.Integer, nullable=False),
    sa.Column("cidr", sa.Text, nullable=False),
    sa.Column("gateway_ip", sa.Text),
    sa.Column("enable_dhcp", sa.Boolean, nullable=False),
    sa.Column("ipv6_ra_mode", sa.Text),
    sa.Column("ipv6_address_mode", sa.Text),
    json_bytes("allocation_pools"),
    json_bytes("dns_nameservers"),
    json_bytes("host_routes"),
)

subnet_cursors = sa.Table(
    "subnet_cursors",
    metadata,
    sa.Column("subnet_id", sa.ForeignKey("subnets.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("next_address", sa.Text, nullable=False),
)
"""Where the search for a free address goes on."""

ports = _resource(
    "ports",
    sa.Column("network_id", sa.ForeignKey("networks.id"), nullable=False),
    sa.Column("admin_state_up", sa.Boolean, nullable=False),
    sa.Column("mac_address", sa.Text, nullable=False),
    sa.Column("device_id", sa.Text, nullable=False, index=True),
    sa.Column("device_owner", sa.Text, nullable=False),
    sa.Column("binding_host_id", sa.Text, nullable=False),
    sa.Column("binding_vnic_type", sa.Text, nullable=False),
    json_bytes("binding_profile"),
    sa.Column("port_security_enabled", sa.Boolean, nullable=False),
    json_bytes("allowed_address_pairs"),
    sa.Column("server", sa.Text, index=True),
    sa.Column("server_position", sa.Integer, nullable=False, default=0, server_default="0"),
    sa.Column("made_for_server", sa.Boolean, nullable=False, default=False, server_default=sa.false()),
    sa.Column("device_tag", sa.Text),
    json_bytes("other_bindings", nullable=True),
    sa.UniqueConstraint("network_id", "mac_address"),
    sa.Index("ports_of_hosts", "binding_host_id"),
    sa.Index("ports_of_routers", "network_id", **where("device_owner = 'network:router_interface'")),
    sa.Index("ports_bound_twice", "network_id", **BOUND_TWICE),
)
"""`server`: of which server it is an interface, by our own word; `device_id` is what its owner says of it.
`other_bindings`: those to hosts that do not have it, beside `binding_host_id`; null, or `[]`: none."""

changed_interfaces = sa.Table(
    "changed_interfaces",
    metadata,
    sa.Column("instance", sa.Text, primary_key=True),
    sa.Column("changed_at", sa.BigInteger, nullable=False),
    sa.Column("changes", sa.Integer, nullable=False),
)
"""Servers whose rows have to be told of their interfaces. `changes` grows: what comes later is not forgotten."""

port_holders = sa.Table(
    "port_holders",
    metadata,
    sa.Column("instance", sa.Text, primary_key=True),
    sa.Column("since", sa.BigInteger, nullable=False),
    sa.Column("look_at", sa.BigInteger, nullable=False, index=True),
)
"""Servers that may have ports of a network service that is not Skep's own. `since`: a port was asked for, or the server
ended; `look_at`: when somebody is to look what it has.
"""

port_addresses = sa.Table(
    "port_addresses",
    metadata,
    sa.Column("subnet_id", sa.ForeignKey("subnets.id"), primary_key=True),
    sa.Column("address", sa.Text, primary_key=True),
    sa.Column("port_id", sa.ForeignKey("ports.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("ip_address", sa.Text, nullable=False, index=True),
    sa.Column("position", sa.Integer, nullable=False),
)
"""The primary key has the last word on who has an address. `position` is the place among those of the port."""

security_groups = _resource(
    "security_groups",
    sa.Column("stateful", sa.Boolean, nullable=False),
    sa.Column("is_default", sa.Boolean, nullable=False),
)

security_group_rules = _resource(
    "security_group_rules",
    sa.Column("security_group_id", sa.ForeignKey("security_groups.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("direction", sa.Text, nullable=False),
    sa.Column("ethertype", sa.Text, nullable=False),
    sa.Column("protocol", sa.Text),
    sa.Column("port_range_min", sa.Integer),
    sa.Column("port_range_max", sa.Integer),
    sa.Column("remote_ip_prefix", sa.Text),
    sa.Column("remote_group_id", sa.ForeignKey("security_groups.id", ondelete="CASCADE"), index=True),
)

port_security_groups = sa.Table(
    "port_security_groups",
    metadata,
    sa.Column("port_id", sa.ForeignKey("ports.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("security_group_id", sa.ForeignKey("security_groups.id"), primary_key=True, index=True),
)

routers = _resource(
    "routers",
    sa.Column("admin_state_up", sa.Boolean, nullable=False),
    sa.Column("gateway_port_id", sa.ForeignKey("ports.id")),
    sa.Column("enable_snat", sa.Boolean, nullable=False),
    json_bytes("routes"),
)
"""`gateway_port_id`: the port on the external network. The other networks are those of its ports (by `device_id`)."""

floating_ips = _resource(
    "floating_ips",
    sa.Column("floating_network_id", sa.ForeignKey("networks.id"), nullable=False),
    sa.Column("floating_port_id", sa.ForeignKey("ports.id"), nullable=False, unique=True),
    sa.Column("floating_ip_address", sa.Text, nullable=False),
    sa.Column("router_id", sa.ForeignKey("routers.id"), index=True),
    sa.Column("port_id", sa.ForeignKey("ports.id"), index=True),
    sa.Column("fixed_ip_address", sa.Text),
    sa.UniqueConstraint("port_id", "fixed_ip_address"),
)
"""The address is that of a port of its own on the external network; `port_id` is the one it leads to."""

network_tags = sa.Table(
    "network_tags",
    metadata,
    sa.Column("resource_id", sa.Text, primary_key=True),
    sa.Column("tag", sa.Text, primary_key=True),
)
"""Tags of any of these resources: their ids are UUIDs."""

network_quotas = sa.Table(
    "network_quotas",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("resource", sa.Text, primary_key=True),
    sa.Column("limit", sa.Integer, nullable=False),
)
"""What an admin set for a project; anything else is as configured."""

auto_allocated_topologies = sa.Table(
    "auto_allocated_topologies",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("network_id", sa.ForeignKey("networks.id", ondelete="SET NULL")),
    sa.Column("router_id", sa.ForeignKey("routers.id", ondelete="SET NULL")),
)
"""What was made for projects that asked for any network."""
