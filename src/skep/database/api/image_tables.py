"""Tables of the embedded image store. Times are microseconds since the epoch; the bytes of an image are in files."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.api.metadata import metadata

images = sa.Table(
    "images",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, index=True),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("visibility", sa.Text, nullable=False),
    sa.Column("owner", sa.Text, index=True),
    sa.Column("protected", sa.Boolean, nullable=False),
    sa.Column("os_hidden", sa.Boolean, nullable=False),
    sa.Column("container_format", sa.Text),
    sa.Column("disk_format", sa.Text),
    sa.Column("min_disk", sa.Integer, nullable=False),
    sa.Column("min_ram", sa.Integer, nullable=False),
    sa.Column("size", sa.BigInteger),
    sa.Column("checksum", sa.Text),
    sa.Column("os_hash_algo", sa.Text),
    sa.Column("os_hash_value", sa.Text),
    sa.Column("created_at", sa.BigInteger, nullable=False, index=True),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Column("deactivated", sa.Boolean, nullable=False, default=False, server_default=sa.false()),
)
"""`status` is `queued` until the bytes are stored whole, then `active`; it is shown as `deactivated` while it is that.

(A release that does not know this keeps the bytes of an image that is `active`.)
"""

image_members = sa.Table(
    "image_members",
    metadata,
    sa.Column("image_id", sa.ForeignKey("images.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("member_id", sa.Text, primary_key=True, index=True),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
)
"""`member_id` is a project."""

image_ids = sa.Table("image_ids", metadata, sa.Column("id", sa.Text, primary_key=True))
"""Every id that an image ever had. A row stays when its image goes, for other projects may still name that id."""

image_tags = sa.Table(
    "image_tags",
    metadata,
    sa.Column("image_id", sa.ForeignKey("images.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("tag", sa.Text, primary_key=True),
)

image_properties = sa.Table(
    "image_properties",
    metadata,
    sa.Column("image_id", sa.ForeignKey("images.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)
