"""Nova's event types that tell of an action, in the order in which they are sent. docs/api.md lists them."""

from __future__ import annotations

from collections.abc import Iterator

from skep.domain.actions import ACTIONS, Action, Kind
from skep.domain.moves import ONCE, STEPS

UPDATE = "instance.update"
NO_HOST = "compute_task.migrate_server.error"
NOT_REBUILT = "compute_task.rebuild_server.error"

FIRST_STEPS = {
    "migrate": "select",
    "resize": "select",
    "evacuate": "evacuate_select",
    "rebuild": "rebuild_prepare",
    "revert_resize": "revert_put_aside",
    "live_migrate": "live_select",
}
"""Name of an action -> the first step of its move."""

NO_HOST_ERRORS = {"migrate": NO_HOST, "resize": NO_HOST, "live_migrate": NO_HOST, "evacuate": NOT_REBUILT}
"""Name of an action -> what is sent, too, when no host was found for its server."""

SILENT = frozenset({"inject_network_info"})
"""Actions that change nothing, and of which nothing is told."""

UNSENT = {
    "instance.exists": "shelve, resize, migrate, revert and rebuild (an account of usage, not an event of the action)",
    "instance.shutdown.start|end": "delete: the host destroys the guest in one step",
    "instance.live_migration_rollback_dest.start|end": "live migration: the target's attempt is undone like any other",
    "instance.power_on.start|end": "unshelve of a server that is still on its host: `instance.unshelve.*` alone",
    "instance.update": "each change of a state or task by an action that has event types of its own",
}
"""What Nova sends besides, and of which action."""


def sent(action: Action) -> tuple[str, ...]:
    """Return what is sent of an action that goes well."""
    if action.name in SILENT:
        return ()
    first = FIRST_STEPS.get(action.name)
    if first is not None:
        return tuple(_of_move(action, first))
    if action.notification is None:
        return (UPDATE,) if action.task is None else (UPDATE, UPDATE)
    name = f"instance.{action.notification}"
    return (f"{name}.start", f"{name}.end") if action.task is not None or action.begins else (name,)


def sent_in_error(action: Action) -> tuple[str, ...]:
    """Return what may be sent of an action that fails, in place of its end."""
    if action.task is None or action.name == "delete":
        return ()
    told: tuple[str, ...] = (f"instance.{action.notification}.error",) if action.notification is not None else ()
    if action.name == "live_migrate":
        told = tuple(f"instance.{STEPS['live_take_back'].starts}.{when}" for when in ("start", "end"))
    beside = (NO_HOST_ERRORS[action.name],) if action.name in NO_HOST_ERRORS else ()
    return (*told, *beside) or (UPDATE,)


def _of_move(action: Action, first: str) -> Iterator[str]:
    if action.name == "evacuate":
        # The API tells of it when it is asked for.
        yield "instance.evacuate"
    name: str | None = first
    while name is not None:
        row = STEPS[name]
        if row.announces is not None:
            yield f"instance.{row.announces}"
        if row.starts is not None:
            yield f"instance.{row.starts}" if row.starts in ONCE else f"instance.{row.starts}.start"
        if row.ends is not None:
            yield f"instance.{row.ends}.end"
        if row.opens is not None:
            yield f"instance.{row.opens}.start"
        if row.closes is not None:
            yield f"instance.{row.closes}.end"
        name = row.next
    if action.kind is Kind.REBUILD:
        yield f"instance.{action.notification}.end"


ALL = frozenset(one for action in ACTIONS.values() for one in (*sent(action), *sent_in_error(action)))
"""All event types that actions send."""

OF_AGGREGATES = ("create", "delete", "update_prop", "update_metadata", "add_host", "remove_host")
"""What is told of aggregates, beside the caching of images."""

OTHERS = frozenset(
    {
        *(f"instance.create.{when}" for when in ("start", "end", "error")),
        *(f"scheduler.select_destinations.{when}" for when in ("start", "end")),
        "compute_task.build_instances.error",
        *(f"keypair.{what}.{when}" for what in ("create", "import", "delete") for when in ("start", "end")),
        *(f"aggregate.cache_images.{when}" for when in ("start", "progress", "end")),
        *(f"aggregate.{what}.{when}" for what in OF_AGGREGATES for when in ("start", "end")),
        *(f"flavor.{what}" for what in ("create", "update", "delete")),
        *(f"server_group.{what}" for what in ("create", "add_member", "delete")),
    }
)
"""All other event types that are sent: of builds, key pairs, aggregates, flavors and server groups."""
