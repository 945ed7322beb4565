"""Networks, subnets, ports, security groups, routers and floating addresses of the embedded network service.

Revision ID: 0024
Revises: 0023
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None
compatible_since = "0001"


def upgrade() -> None:
    """Add the tables of this revision."""
    op.create_table(
        "network_quotas",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("limit", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "resource"),
    )
    op.create_table(
        "network_tags",
        sa.Column("resource_id", sa.Text(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("resource_id", "tag"),
    )
    op.create_table(
        "networks",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("revision_number", sa.Integer(), nullable=False),
        sa.Column("admin_state_up", sa.Boolean(), nullable=False),
        sa.Column("shared", sa.Boolean(), nullable=False),
        sa.Column("external", sa.Boolean(), nullable=False),
        sa.Column("is_default", sa.Boolean(), nullable=False),
        sa.Column("mtu", sa.Integer(), nullable=False),
        sa.Column("port_security_enabled", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_networks_project_id", "networks", ["project_id"], unique=False)
    op.create_table(
        "security_groups",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("revision_number", sa.Integer(), nullable=False),
        sa.Column("stateful", sa.Boolean(), nullable=False),
        sa.Column("is_default", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_security_groups_project_id", "security_groups", ["project_id"], unique=False)
    op.create_table(
        "ports",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("revision_number", sa.Integer(), nullable=False),
        sa.Column("network_id", sa.Text(), nullable=False),
        sa.Column("admin_state_up", sa.Boolean(), nullable=False),
        sa.Column("mac_address", sa.Text(), nullable=False),
        sa.Column("device_id", sa.Text(), nullable=False),
        sa.Column("device_owner", sa.Text(), nullable=False),
        sa.Column("binding_host_id", sa.Text(), nullable=False),
        sa.Column("binding_vnic_type", sa.Text(), nullable=False),
        sa.Column("binding_profile", sa.LargeBinary(), nullable=False),
        sa.Column("port_security_enabled", sa.Boolean(), nullable=False),
        sa.Column("allowed_address_pairs", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["network_id"],
            ["networks.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("network_id", "mac_address"),
    )
    op.create_index("ix_ports_device_id", "ports", ["device_id"], unique=False)
    op.create_index("ix_ports_project_id", "ports", ["project_id"], unique=False)
    op.create_table(
        "security_group_rules",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("revision_number", sa.Integer(), nullable=False),
        sa.Column("security_group_id", sa.Text(), nullable=False),
        sa.Column("direction", sa.Text(), nullable=False),
        sa.Column("ethertype", sa.Text(), nullable=False),
        sa.Column("protocol", sa.Text(), nullable=True),
        sa.Column("port_range_min", sa.Integer(), nullable=True),
        sa.Column("port_range_max", sa.Integer(), nullable=True),
        sa.Column("remote_ip_prefix", sa.Text(), nullable=True),
        sa.Column("remote_group_id", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["remote_group_id"], ["security_groups.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["security_group_id"], ["security_groups.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_security_group_rules_project_id", "security_group_rules", ["project_id"], unique=False)
    op.create_index(
        "ix_security_group_rules_remote_group_id", "security_group_rules", ["remote_group_id"], unique=False
    )
    op.create_index(
        "ix_security_group_rules_security_group_id", "security_group_rules", ["security_group_id"], unique=False
    )
    op.create_table(
        "subnets",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("revision_number", sa.Integer(), nullable=False),
        sa.Column("network_id", sa.Text(), nullable=False),
        sa.Column("ip_version", sa.Integer(), nullable=False),
        sa.Column("cidr", sa.Text(), nullable=False),
        sa.Column("gateway_ip", sa.Text(), nullable=True),
        sa.Column("enable_dhcp", sa.Boolean(), nullable=False),
        sa.Column("ipv6_ra_mode", sa.Text(), nullable=True),
        sa.Column("ipv6_address_mode", sa.Text(), nullable=True),
        sa.Column("allocation_pools", sa.LargeBinary(), nullable=False),
        sa.Column("dns_nameservers", sa.LargeBinary(), nullable=False),
        sa.Column("host_routes", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["network_id"],
            ["networks.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_subnets_network_id", "subnets", ["network_id"], unique=False)
    op.create_index("ix_subnets_project_id", "subnets", ["project_id"], unique=False)
    op.create_table(
        "port_addresses",
        sa.Column("subnet_id", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("port_id", sa.Text(), nullable=False),
        sa.Column("ip_address", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["port_id"], ["ports.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["subnet_id"],
            ["subnets.id"],
        ),
        sa.PrimaryKeyConstraint("subnet_id", "address"),
    )
    op.create_index("ix_port_addresses_ip_address", "port_addresses", ["ip_address"], unique=False)
    op.create_index("ix_port_addresses_port_id", "port_addresses", ["port_id"], unique=False)
    op.create_table(
        "port_security_groups",
        sa.Column("port_id", sa.Text(), nullable=False),
        sa.Column("security_group_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["port_id"], ["ports.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["security_group_id"],
            ["security_groups.id"],
        ),
        sa.PrimaryKeyConstraint("port_id", "security_group_id"),
    )
    op.create_index(
        "ix_port_security_groups_security_group_id", "port_security_groups", ["security_group_id"], unique=False
    )
    op.create_table(
        "routers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("revision_number", sa.Integer(), nullable=False),
        sa.Column("admin_state_up", sa.Boolean(), nullable=False),
        sa.Column("gateway_port_id", sa.Text(), nullable=True),
        sa.Column("enable_snat", sa.Boolean(), nullable=False),
        sa.Column("routes", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["gateway_port_id"],
            ["ports.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_routers_project_id", "routers", ["project_id"], unique=False)
    op.create_table(
        "subnet_cursors",
        sa.Column("subnet_id", sa.Text(), nullable=False),
        sa.Column("next_address", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["subnet_id"], ["subnets.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("subnet_id"),
    )
    op.create_table(
        "auto_allocated_topologies",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("network_id", sa.Text(), nullable=True),
        sa.Column("router_id", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["network_id"], ["networks.id"], ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["router_id"], ["routers.id"], ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("project_id"),
    )
    op.create_table(
        "floating_ips",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("revision_number", sa.Integer(), nullable=False),
        sa.Column("floating_network_id", sa.Text(), nullable=False),
        sa.Column("floating_port_id", sa.Text(), nullable=False),
        sa.Column("floating_ip_address", sa.Text(), nullable=False),
        sa.Column("router_id", sa.Text(), nullable=True),
        sa.Column("port_id", sa.Text(), nullable=True),
        sa.Column("fixed_ip_address", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["floating_network_id"],
            ["networks.id"],
        ),
        sa.ForeignKeyConstraint(
            ["floating_port_id"],
            ["ports.id"],
        ),
        sa.ForeignKeyConstraint(
            ["port_id"],
            ["ports.id"],
        ),
        sa.ForeignKeyConstraint(
            ["router_id"],
            ["routers.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("floating_port_id"),
        sa.UniqueConstraint("port_id", "fixed_ip_address"),
    )
    op.create_index("ix_floating_ips_port_id", "floating_ips", ["port_id"], unique=False)
    op.create_index("ix_floating_ips_project_id", "floating_ips", ["project_id"], unique=False)
    op.create_index("ix_floating_ips_router_id", "floating_ips", ["router_id"], unique=False)


def downgrade() -> None:
    """Take them away again."""
    op.drop_index("ix_floating_ips_router_id", table_name="floating_ips")
    op.drop_index("ix_floating_ips_project_id", table_name="floating_ips")
    op.drop_index("ix_floating_ips_port_id", table_name="floating_ips")
    op.drop_table("floating_ips")
    op.drop_table("auto_allocated_topologies")
    op.drop_table("subnet_cursors")
    op.drop_index("ix_routers_project_id", table_name="routers")
    op.drop_table("routers")
    op.drop_index("ix_port_security_groups_security_group_id", table_name="port_security_groups")
    op.drop_table("port_security_groups")
    op.drop_index("ix_port_addresses_port_id", table_name="port_addresses")
    op.drop_index("ix_port_addresses_ip_address", table_name="port_addresses")
    op.drop_table("port_addresses")
    op.drop_index("ix_subnets_project_id", table_name="subnets")
    op.drop_index("ix_subnets_network_id", table_name="subnets")
    op.drop_table("subnets")
    op.drop_index("ix_security_group_rules_security_group_id", table_name="security_group_rules")
    op.drop_index("ix_security_group_rules_remote_group_id", table_name="security_group_rules")
    op.drop_index("ix_security_group_rules_project_id", table_name="security_group_rules")
    op.drop_table("security_group_rules")
    op.drop_index("ix_ports_project_id", table_name="ports")
    op.drop_index("ix_ports_device_id", table_name="ports")
    op.drop_table("ports")
    op.drop_index("ix_security_groups_project_id", table_name="security_groups")
    op.drop_table("security_groups")
    op.drop_index("ix_networks_project_id", table_name="networks")
    op.drop_table("networks")
    op.drop_table("network_tags")
    op.drop_table("network_quotas")
