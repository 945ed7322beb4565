"""Triggers that note facts of servers which become events (`domain.server_events.Fact`)."""

from __future__ import annotations

from skep.database.triggers import Trigger
from skep.domain.instances import State
from skep.domain.states import SETTLED, stored

KEY = "{key}"
NOTED = "fact_key, at, kind, instance, project_id, user_id, request_id, attempt, host, what, detail, text, fault"

LATEST_REQUEST = "(SELECT a.request_id FROM actions a WHERE a.instance = {row} ORDER BY a.started_at DESC LIMIT 1)"

OWNER = "coalesce((SELECT i.project_id FROM instances i WHERE i.uuid = NEW.instance), {said})"
"""Whose a server is: an admin acts in another project."""

LASTING = "NEW.state IN ({})".format(",".join(f"'{state}'" for state in stored(SETTLED | {State.DELETED})))

OF_ROW = "NEW.uuid, NEW.project_id, NEW.user_id, " + LATEST_REQUEST.format(row="NEW.uuid") + ", NEW.attempt, NEW.host"

OF_ATTEMPT = (
    "NEW.instance, i.project_id, i.user_id, "
    + LATEST_REQUEST.format(row="NEW.instance")
    + ", NEW.attempt, NEW.host, NEW.outcome, NEW.error, NEW.message, NULL "
    "FROM instances i WHERE i.uuid = NEW.instance"
)


def _noting(name: str, moment: str, table: str, condition: str | None, values: str) -> Trigger:
    return Trigger(name, moment, table, condition, "event_facts", NOTED, values)


TRIGGERS = (
    _noting(
        "facts_of_states",
        "UPDATE OF state",
        "instances",
        f"OLD.state <> NEW.state AND {LASTING}",
        f"{KEY}, coalesce(NEW.updated_at, NEW.step_at), 'state', {OF_ROW}, NEW.state, OLD.state, NULL, "
        "CASE WHEN NEW.state = 'error' THEN NEW.fault END",
    ),
    _noting(
        "facts_of_hosts",
        "UPDATE OF host",
        "instances",
        f"OLD.host <> NEW.host AND {LASTING}",
        f"{KEY}, coalesce(NEW.updated_at, NEW.step_at), 'host', {OF_ROW}, OLD.host, NULL, NULL, NULL",
    ),
    _noting(
        "facts_of_choices",
        "INSERT",
        "attempts",
        None,
        f"{KEY}, NEW.started_at, 'chosen', {OF_ATTEMPT}",
    ),
    _noting(
        "facts_of_attempts",
        "UPDATE OF outcome",
        "attempts",
        "NEW.outcome IS NOT NULL AND NEW.outcome <> 'built' AND NEW.outcome <> coalesce(OLD.outcome, '')",
        f"{KEY}, coalesce(NEW.ended_at, NEW.started_at), 'attempt', {OF_ATTEMPT}",
    ),
    _noting(
        "facts_of_requests",
        "INSERT",
        "actions",
        "NEW.action <> 'create'",
        f"{KEY}, NEW.started_at, 'begun', NEW.instance, {OWNER.format(said='NEW.project_id')}, "
        "NEW.user_id, NEW.request_id, NULL, NULL, NEW.action, NULL, NULL, NULL",
    ),
    _noting(
        "facts_of_ends",
        "INSERT",
        "action_events",
        "NEW.finished_at IS NOT NULL",
        f"{KEY}, NEW.finished_at, 'ended', NEW.instance, {OWNER.format(said='a.project_id')}, "
        "a.user_id, NEW.request_id, NULL, NEW.host, a.action, NEW.result, a.message, NULL FROM actions a "
        "WHERE a.instance = NEW.instance AND a.request_id = NEW.request_id AND a.action <> 'create'",
    ),
)
