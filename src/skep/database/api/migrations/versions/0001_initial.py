"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from skep.database.partial_index import where

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make all tables."""
    op.create_table(
        "aggregates",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("metadata", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        sa.UniqueConstraint("uuid"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "build_requests",
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("secrets", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("instance"),
    )
    op.create_index("build_requests_list", "build_requests", ["project_id", "created_at", "instance"], unique=False)
    op.create_table(
        "cells",
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("uuid"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "flavors",
        sa.Column("flavorid", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("is_public", sa.Boolean(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("root_gb", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("flavorid"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "host_mappings",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("cell", sa.Text(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("disabled_reason", sa.Text(), nullable=True),
        sa.Column("forced_down", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("node"),
        sa.UniqueConstraint("host"),
    )
    op.create_table(
        "images",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("visibility", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("protected", sa.Boolean(), nullable=False),
        sa.Column("os_hidden", sa.Boolean(), nullable=False),
        sa.Column("container_format", sa.Text(), nullable=True),
        sa.Column("disk_format", sa.Text(), nullable=True),
        sa.Column("min_disk", sa.Integer(), nullable=False),
        sa.Column("min_ram", sa.Integer(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=True),
        sa.Column("checksum", sa.Text(), nullable=True),
        sa.Column("os_hash_algo", sa.Text(), nullable=True),
        sa.Column("os_hash_value", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_images_created_at"), "images", ["created_at"], unique=False)
    op.create_index(op.f("ix_images_name"), "images", ["name"], unique=False)
    op.create_index(op.f("ix_images_owner"), "images", ["owner"], unique=False)
    op.create_table(
        "instance_mappings",
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("cell", sa.Text(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("not_before", sa.BigInteger(), nullable=False),
        sa.Column("delete_intent_at", sa.BigInteger(), nullable=True),
        sa.Column("delete_context", sa.LargeBinary(), nullable=True),
        sa.Column("deleted_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("instance"),
    )
    op.create_index(
        "instance_mappings_deleting",
        "instance_mappings",
        ["delete_intent_at"],
        unique=False,
        **where("delete_intent_at IS NOT NULL AND deleted_at IS NULL"),
    )
    op.create_index(
        "instance_mappings_purge",
        "instance_mappings",
        ["deleted_at"],
        unique=False,
        **where("deleted_at IS NOT NULL"),
    )
    op.create_index("instance_mappings_request", "instance_mappings", ["request_id"], unique=False)
    op.create_index(
        "instance_mappings_waiting",
        "instance_mappings",
        ["not_before"],
        unique=False,
        **where("cell IS NULL AND deleted_at IS NULL"),
    )
    op.create_table(
        "leases",
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("lapses_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner"),
    )
    op.create_table(
        "projects",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "quota_charges",
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("instances", sa.Integer(), nullable=False),
        sa.Column("cores", sa.Integer(), nullable=False),
        sa.Column("ram", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("instance"),
    )
    op.create_index("quota_charges_project", "quota_charges", ["project_id"], unique=False)
    op.create_table(
        "quota_class_limits",
        sa.Column("class_name", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("hard_limit", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("class_name", "resource"),
    )
    op.create_table(
        "quota_limits",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("hard_limit", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "user_id", "resource"),
    )
    op.create_table(
        "quota_sums",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("instances", sa.BigInteger(), nullable=False),
        sa.Column("cores", sa.BigInteger(), nullable=False),
        sa.Column("ram", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project_id"),
    )
    op.create_table(
        "request_specs",
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("instance"),
    )
    op.create_table(
        "requests",
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("min_count", sa.Integer(), nullable=False),
        sa.Column("max_count", sa.Integer(), nullable=False),
        sa.Column("met", sa.Boolean(), nullable=False),
        sa.Column("context", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("request_id"),
    )
    op.create_table(
        "revoked_tokens",
        sa.Column("audit_id", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("audit_id"),
    )
    op.create_index(op.f("ix_revoked_tokens_expires_at"), "revoked_tokens", ["expires_at"], unique=False)
    op.create_table(
        "roles",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "server_groups",
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("max_server_per_host", sa.Integer(), nullable=True),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("uuid"),
    )
    op.create_index("server_groups_project", "server_groups", ["project_id"], unique=False)
    op.create_table(
        "users",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("email", sa.Text(), nullable=True),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("default_project_id", sa.Text(), nullable=True),
        sa.Column("password_hash", sa.Text(), nullable=True),
        sa.Column("tokens_invalid_before", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "aggregate_hosts",
        sa.Column("aggregate_id", sa.Integer(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["aggregate_id"], ["aggregates.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("aggregate_id", "host"),
    )
    op.create_table(
        "flavor_access",
        sa.Column("flavorid", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["flavorid"], ["flavors.flavorid"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("flavorid", "project_id"),
    )
    op.create_table(
        "image_properties",
        sa.Column("image_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["image_id"], ["images.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("image_id", "name"),
    )
    op.create_table(
        "image_tags",
        sa.Column("image_id", sa.Text(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["image_id"], ["images.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("image_id", "tag"),
    )
    op.create_table(
        "role_assignments",
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("role_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["role_id"], ["roles.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("user_id", "project_id", "role_id"),
    )
    op.create_index("role_assignments_project", "role_assignments", ["project_id"], unique=False)
    op.create_table(
        "server_group_members",
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("group_uuid", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["group_uuid"], ["server_groups.uuid"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("instance"),
    )
    op.create_index(op.f("ix_server_group_members_group_uuid"), "server_group_members", ["group_uuid"], unique=False)
    op.create_table(
        "system_role_assignments",
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("role_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["role_id"], ["roles.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("user_id", "role_id"),
    )


def downgrade() -> None:
    """Remove all tables."""
    op.drop_table("system_role_assignments")
    op.drop_index(op.f("ix_server_group_members_group_uuid"), table_name="server_group_members")
    op.drop_table("server_group_members")
    op.drop_index("role_assignments_project", table_name="role_assignments")
    op.drop_table("role_assignments")
    op.drop_table("image_tags")
    op.drop_table("image_properties")
    op.drop_table("flavor_access")
    op.drop_table("aggregate_hosts")
    op.drop_table("users")
    op.drop_index("server_groups_project", table_name="server_groups")
    op.drop_table("server_groups")
    op.drop_table("roles")
    op.drop_index(op.f("ix_revoked_tokens_expires_at"), table_name="revoked_tokens")
    op.drop_table("revoked_tokens")
    op.drop_table("requests")
    op.drop_table("request_specs")
    op.drop_table("quota_sums")
    op.drop_table("quota_limits")
    op.drop_table("quota_class_limits")
    op.drop_index("quota_charges_project", table_name="quota_charges")
    op.drop_table("quota_charges")
    op.drop_table("projects")
    op.drop_table("leases")
    op.drop_index(
        "instance_mappings_waiting",
        table_name="instance_mappings",
        **where("cell IS NULL AND deleted_at IS NULL"),
    )
    op.drop_index("instance_mappings_request", table_name="instance_mappings")
    op.drop_index("instance_mappings_purge", table_name="instance_mappings", **where("deleted_at IS NOT NULL"))
    op.drop_index(
        "instance_mappings_deleting",
        table_name="instance_mappings",
        **where("delete_intent_at IS NOT NULL AND deleted_at IS NULL"),
    )
    op.drop_table("instance_mappings")
    op.drop_index(op.f("ix_images_owner"), table_name="images")
    op.drop_index(op.f("ix_images_name"), table_name="images")
    op.drop_index(op.f("ix_images_created_at"), table_name="images")
    op.drop_table("images")
    op.drop_table("host_mappings")
    op.drop_table("flavors")
    op.drop_table("cells")
    op.drop_index("build_requests_list", table_name="build_requests")
    op.drop_table("build_requests")
    op.drop_table("aggregates")
