"""Triggers that write the events of what only the API database knows."""

from __future__ import annotations

from skep.database.triggers import Trigger

NOTED = "event_key, stored_at, time, type, instance, project_id, user_id, request_id, cell, before_cell"
OF_MAPPING = (
    "NEW.instance, NEW.project_id, (SELECT b.user_id FROM build_requests b WHERE b.instance = NEW.instance), "
    "NEW.request_id, NEW.cell"
)


def _noting(name: str, moment: str, condition: str, values: str) -> Trigger:
    return Trigger(name, moment, "instance_mappings", condition, "events", NOTED, values)


TRIGGERS = (
    _noting(
        "events_of_requests",
        "INSERT",
        "NEW.cell IS NULL",
        f"{{key}}, {{now}}, NEW.created_at, 'server.requested', {OF_MAPPING}, NULL",
    ),
    _noting(
        "events_of_cells",
        "UPDATE OF cell",
        "OLD.cell <> NEW.cell",
        f"{{key}}, {{now}}, {{now}}, 'server.moved_cell', {OF_MAPPING}, OLD.cell",
    ),
    _noting(
        "events_of_deletes",
        "UPDATE OF deleted_at",
        "OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL AND NEW.cell IS NULL",
        f"{{key}}, {{now}}, NEW.deleted_at, 'server.deleted', {OF_MAPPING}, NULL",
    ),
)
