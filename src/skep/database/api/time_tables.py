"""The time of the API database, and the servers whose cell is not known since it went back."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.api.metadata import metadata
from skep.database.timelines import tables_of

time = tables_of(metadata)

recovering_servers = sa.Table(
    "recovering_servers",
    metadata,
    sa.Column("instance", sa.Text, primary_key=True),
    sa.Column("doubt", sa.Text),
)
"""Servers that had no cell when the database went back: they may have got one since, so nobody places them before all
cells were asked. `doubt`: why an operator has to decide; null while cells are waited for."""
