"""All of Nova's event types: which Skep sends, when, which not and why, and what each was called before versions.

Source: Nova's notification reference (names), and the names that consumers of its unversioned notifications know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from skep.domain import event_types

START, END, ERROR = "start", "end", "error"
BOTH, ALL_THREE, NO_PHASE = (START, END), (START, END, ERROR), ("",)
PHASES = frozenset({*ALL_THREE, "progress"})

COMPUTE = "compute."

_SHARES = "Skep has no shares"


class EventType(msgspec.Struct, frozen=True):
    """One of Nova's event types with its phases, such as `instance.create` with `.start`, `.end` and `.error`."""

    name: str
    phases: tuple[str, ...]
    """Nova's, in order; an empty one is the name alone."""
    about: str
    """When it is sent, or why not."""
    unversioned: Mapping[str, str] = {}
    """Phase -> the unversioned event type; a phase that is not there has none."""

    def of(self, phase: str) -> str:
        """Return the event type of a phase."""
        return f"{self.name}.{phase}" if phase else self.name

    @property
    def sent(self) -> tuple[str, ...]:
        """The phases that Skep sends; those that Nova has not come last."""
        own = {phase for name in SENT for stem, phase in (split(name),) if stem == self.name}
        return (*(phase for phase in self.phases if phase in own), *sorted(own - {*self.phases}))


def split(event_type: str) -> tuple[str, str]:
    """Return the name and the phase of an event type."""
    stem, _, phase = event_type.rpartition(".")
    return (stem, phase) if phase in PHASES else (event_type, "")


def _was(stem: str, phases: Iterable[str]) -> dict[str, str]:
    return {phase: f"{stem}.{phase}" if phase else stem for phase in phases}


def _action(
    name: str, about: str, was: str | None = None, *, phases: tuple[str, ...] = BOTH, before: bool = True
) -> EventType:
    """Return the row of an action on servers; `was` is its unversioned name where that is another."""
    unversioned = _was(f"{COMPUTE}instance.{was or name}", phases) if before else {}
    return EventType(f"instance.{name}", phases, about, unversioned)


def _task(name: str, about: str) -> EventType:
    return EventType(f"compute_task.{name}", (ERROR,), about, {ERROR: f"compute_task.{name}"})


def _not(name: str, phases: tuple[str, ...], why: str) -> EventType:
    return EventType(name, phases, why)


TABLE = (
    _action("create", "the host may begin; the guest runs; an attempt failed on its host", phases=ALL_THREE),
    _action(
        "update",
        "a build comes to another state, `os-resetState`, a new password, another name, other tags or metadata",
        phases=NO_PHASE,
    ),
    _action("delete", "the host is told to destroy the guest; nothing of it is left"),
    _action("soft_delete", "the guest is stopped, to be reclaimed later"),
    _action("restore", "a soft-deleted server is started again"),
    _action("power_on", "the action begins; is over"),
    _action("power_off", "the action begins; is over"),
    _action("reboot", "the action begins; is over; failed", phases=ALL_THREE),
    _action("pause", "the action begins; is over"),
    _action("unpause", "the action begins; is over"),
    _action("suspend", "the action begins; is over"),
    _action("resume", "the action begins; is over"),
    _action("rescue", "the action begins; is over"),
    _action("unrescue", "the action begins; is over"),
    _action("snapshot", "an image or a backup: the host begins; the image is stored"),
    _action("trigger_crash_dump", "the action begins; is over"),
    _action("shelve", "the action begins; is over"),
    _action("shelve_offload", "the host is told to undo a shelved server; nothing of it is left"),
    _action("unshelve", "the action begins; the guest runs"),
    _action("rebuild_scheduled", "a rebuild or an evacuation has its host", "rebuild.scheduled", phases=NO_PHASE),
    _action("rebuild", "the guest is made anew; it runs; it failed", phases=ALL_THREE),
    _action("evacuate", "an evacuation is asked for", phases=NO_PHASE),
    _action("resize_prep", "a resize or a migration looks for its host; has it", "resize.prep"),
    _action("resize", "the old host puts the guest aside; has; the move failed", phases=ALL_THREE),
    _action("resize_finish", "the new host begins; the guest runs there", "finish_resize"),
    _action("resize_confirm", "the action begins; is over", "resize.confirm"),
    _action("resize_revert", "the action begins; the guest runs where it was", "resize.revert"),
    _action("live_migration_pre", "the target makes ready; is ready", "live_migration.pre"),
    _action("live_migration_post", "the guest runs on the target; the source is clean", "live_migration._post"),
    _action("live_migration_post_dest", "the target takes the server up; has", "live_migration.post.dest"),
    _action("live_migration_rollback", "the guest stays where it was; is told so", "live_migration._rollback"),
    _action(
        "live_migration_rollback_dest",
        "the target's attempt is undone like any other, without an event type of its own",
        "live_migration.rollback.dest",
    ),
    _action("live_migration_abort", "the wish is handed on; is over", "live.migration.abort"),
    _action("live_migration_force_complete", "the wish is handed on; is over", "live.migration.force.complete"),
    _action("lock", "once it is done", phases=NO_PHASE, before=False),
    _action("unlock", "once it is done", phases=NO_PHASE, before=False),
    _action("interface_attach", "once it is done; a refusal is the answer", phases=ALL_THREE, before=False),
    _action("interface_detach", "once it is done", before=False),
    _action("shutdown", "the host destroys the guest of a deleted server in one step: `instance.delete.*` tells of it"),
    _action("exists", "an account of usage: `GET /os-simple-tenant-usage` has it", phases=NO_PHASE),
    _action("volume_attach", "once the server has it; a refusal is the answer", phases=ALL_THREE, before=False),
    _action("volume_detach", "once it is done", before=False),
    _action(
        "volume_swap",
        "the host begins to copy; the guest uses the other volume; it stays with the old one",
        phases=ALL_THREE,
        before=False,
    ),
    _not("instance.share_attach", ALL_THREE, _SHARES),
    _not("instance.share_detach", ALL_THREE, _SHARES),
    _not("volume.usage", NO_PHASE, "what guests read and write of volumes is not counted"),
    _task("build_instances", "no host is there, or none is left, for a new server"),
    _task("migrate_server", "no host is there for a resize or a migration"),
    _task("rebuild_server", "no host is there for an evacuation"),
    EventType(
        "scheduler.select_destinations",
        BOTH,
        "hosts are looked for; were found",
        _was("scheduler.select_destinations", BOTH),
    ),
    *(
        EventType(f"keypair.{what}", BOTH, "both once it is done", _was(f"keypair.{what}", BOTH))
        for what in ("create", "import", "delete")
    ),
    EventType("aggregate.cache_images", (START, "progress", END), "hosts fetch images: begins; one has; all have"),
    *(EventType(f"aggregate.{what}", BOTH, "both once it is done") for what in event_types.OF_AGGREGATES),
    EventType("flavor.create", NO_PHASE, "once it is done"),
    EventType("flavor.update", NO_PHASE, "another description, extra specs, or who may use it"),
    EventType("flavor.delete", NO_PHASE, "once it is done"),
    EventType("server_group.create", NO_PHASE, "once it is done"),
    EventType("server_group.add_member", NO_PHASE, "servers were asked for in it"),
    EventType("server_group.delete", NO_PHASE, "once it is done"),
    *(
        _not(f"service.{what}", NO_PHASE, "hosts and processes come and go by their reports: `GET /os-services`")
        for what in ("create", "update", "delete")
    ),
    _not("compute.exception", NO_PHASE, "errors are in the log and in the fault of a server"),
    _not("metrics.update", NO_PHASE, "monitors of hosts are read by the scheduler alone"),
    _not(
        "libvirt.connect",
        (ERROR,),
        "an agent that does not reach its libvirt says so in its log",
    ),
)

BY_NAME = {row.name: row for row in TABLE}

SENT = event_types.ALL | event_types.OTHERS
"""All event types that Skep sends."""


def unversioned(event_type: str) -> str | None:
    """Return what an event type was called before versions; None where it had no such form."""
    stem, phase = split(event_type)
    row = BY_NAME.get(stem)
    return None if row is None else row.unversioned.get(phase)
