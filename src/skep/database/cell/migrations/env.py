"""Runs a migration on the connection that `skep.database.schema` opened."""

from __future__ import annotations

from alembic import context

from skep.database.cell.schema import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=True,
    version_table=context.config.attributes["version_table"],
)
context.run_migrations()
