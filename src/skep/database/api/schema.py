"""All tables of the API database, for its migrations: importing this declares every one of them."""

from __future__ import annotations

from skep.database.api import (
    enrolment_tables,
    event_tables,
    host_network_tables,
    identity_tables,
    image_tables,
    network_tables,
    service_tables,
    tables,
    time_tables,
)
from skep.database.api.metadata import metadata

__all__ = [
    "enrolment_tables",
    "event_tables",
    "host_network_tables",
    "identity_tables",
    "image_tables",
    "metadata",
    "network_tables",
    "service_tables",
    "tables",
    "time_tables",
]
