"""Actions: what may be done to an existing server, one row of facts each.

`ACTIONS` is the one table. Rows, hosts, deadlines, metrics and log lines take their facts from it; the API's own (key,
body, policy) are in `api/actions.py`. Work beyond the kind of an action is a plain function of the part that does it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from skep.domain.block_devices import BlockDevice
from skep.domain.builds import Step
from skep.domain.capabilities import Capability
from skep.domain.context import RequestContext
from skep.domain.decoding import convert
from skep.domain.ids import InstanceUuid
from skep.domain.images import Image
from skep.domain.instances import Instance, State, Task
from skep.domain.key_pairs import KeyPair
from skep.domain.states import GUEST_ON_HOST
from skep.domain.vifs import PlugInterface
from skep.domain.volumes import AssistSnapshot, ExtendVolumes, PlugVolume, SwapVolume


class Kind(enum.StrEnum):
    """The part that carries an action out."""

    ROW = "row"
    """The API and the conductors, on rows. An action without a task is one write (`database/cell/row_actions.py`)."""
    GUEST = "guest"
    """The server's host, on the guest of the current attempt."""
    REBUILD = "rebuild"
    """The server's host, by a new attempt."""
    REHOST = "rehost"
    """Conductors and two hosts: the server gets an attempt on another host."""


Quota = Literal["charged", "given back", "the larger of two"]


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one action."""

    name: str
    """Its name in rows, messages, metrics and log lines; never changes."""
    record: str
    """Nova's name of the instance action that it leaves."""
    kind: Kind
    begins_in: frozenset[State] | None = None
    """None: any state."""
    overrides: frozenset[Task] = frozenset()
    """Tasks that it may end to begin. Beside other tasks it begins only if it has no task itself."""
    lock_refuses: bool = True
    """Whether a locked server refuses it to callers without admin rights."""
    task: Task | None = None
    """The server's task while it runs; None: it is over when it was written."""
    phases: Mapping[str, Task] = MappingProxyType({})
    """What the task is called from the phase on that its host is in: `BEGUN`, and what the host tells of it."""
    arguments: type[msgspec.Struct] | None = None
    """Its argument besides the server; None: no argument."""
    capability: Capability | None = None
    """What the driver of its host has to be able to do; None: it is no matter of a driver."""
    further: frozenset[Capability] = frozenset()
    """What else the driver has to be able to do."""
    becomes: State | None = None
    """The state after it; None: unchanged, or by its arguments."""
    event: str | None = None
    """The event of the instance action; None: it has none."""
    event_of: Literal["source", "target"] | None = None
    """Whose host the event of an action about a move names; None: that of who ends the action."""
    notification: str | None = None
    """The versioned notifications are `instance.NAME.start`, `.end` and `.error`, of an action without a task
    `instance.NAME`; None: `instance.update` tells of it."""
    begins: bool = False
    """Of an action without a task: its notifications are `instance.NAME.start` and `.end`, as if it had one, and its
    event names the server's host."""
    deadline: str | None = None
    """The setting of `[conductor]` with the seconds for which its host may be silent; None: without a limit."""
    quota: Quota | None = None
    """What becomes of the charge of the server; None: it stays as it is."""
    has_secrets: bool = False
    """Whether arguments of it are secret: they are kept sealed, and go to its host alone."""
    leaves_guest: bool = False
    """Whether its host changes nothing of the guest: given up it is over, whatever the host did."""

    is_repeated: bool = False
    """Whether its host carries it out again, also past its deadline, until it says what came of it: a report of its
    guests does not show that."""

    @property
    def needs(self) -> tuple[Capability, ...]:
        """All that the driver of its host has to be able to do."""
        return (*(() if self.capability is None else (self.capability,)), *sorted(self.further))

    @property
    def tasks(self) -> frozenset[Task]:
        """The task in all its phases."""
        first = frozenset() if self.task is None else frozenset({self.task})
        return first | frozenset(self.phases.values())


class MakeImage(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of actions that make an image."""

    image_id: str
    """It is there, without bytes."""
    disk_format: str
    """Of its bytes, in Glance's words."""


class Rebuild(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a rebuild."""

    changes: dict[str, Any]
    """What of the server is another afterwards: attributes of the instance, as JSON has them."""
    preserve: bool = False
    """Whether the ephemeral disks stay."""
    reimage: Image | None = None
    """With what the volume is filled anew that the server boots from; None: it stays as it is, or there is none."""

    def rebuilt(self, server: Instance) -> Instance:
        """Return a server as it is to be."""
        changes = dict(self.changes)
        if self.reimage is not None:
            image_id = self.reimage.id
            changes["block_devices"] = tuple(
                msgspec.structs.replace(one, uuid=image_id) if _is_boot_volume_of_image(one) else one
                for one in server.block_devices
            )
        if "image" in changes:
            image = changes["image"] = convert(changes["image"], Image)
            changes["block_devices"] = tuple(
                msgspec.structs.replace(one, uuid=image.id) if _is_of_image(one) else one
                for one in server.block_devices
            )
        if changes.get("key_pair") is not None:
            changes["key_pair"] = convert(changes["key_pair"], KeyPair)
        return msgspec.structs.replace(server, **changes)


def _is_of_image(device: BlockDevice) -> bool:
    """Tell whether a disk is the one on its host that a server boots from: a volume stays as it was made."""
    return device.source_type == "image" and device.destination_type == "local"


def _is_boot_volume_of_image(device: BlockDevice) -> bool:
    """Tell whether a disk is a volume that was made of an image and that a server boots from."""
    return device.boot_index == 0 and (device.source_type, device.destination_type) == ("image", "volume")


class RescueGuest(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a rescue."""

    rescue_image: Image | None = None
    """What the rescue disk is made from; None: the server has no image."""


class SealedRescue(msgspec.Struct, frozen=True, kw_only=True):
    """The secret arguments of a rescue: a host gets the password, and a ticket for the image only if it stands here."""

    admin_password: str
    instance: InstanceUuid
    image: str | None = None


class EvacuateTo(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of an evacuation besides the host that it names."""

    forced: bool = False
    """No other host fits, whatever the scheduler thinks of it."""
    stopped: bool = False
    """The server is left stopped, however it was."""


class ShelveServer(MakeImage, frozen=True, kw_only=True):
    """The arguments of a shelve."""

    was: State
    """Of the server: one that ran is shut down for the image, and runs again if that comes to nothing."""
    project_id: str
    """Of the image: the server's own."""


class UnshelveServer(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of an unshelve to a host that is to be chosen: in which zone, or which one."""

    zone: str | None = None
    host: str | None = None


class ActionRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was asked of a server, as its row keeps it while the action runs."""

    action: str
    """Its name in `ACTIONS`."""
    context: RequestContext
    """Whole, as it came."""
    arguments: dict[str, Any] = {}
    secrets: bytes | None = None
    """Secret arguments, encrypted."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """An action that is over, for its log line, metric and notification."""

    action: str
    context: RequestContext
    instance: InstanceUuid
    attempt: int
    host: str | None
    started_at: int
    ended_at: int
    error: str | None = None
    arguments: dict[str, Any] = {}
    """As asked, without secret ones."""
    before: State | None = None
    """The state before it, where it was one write."""
    before_task: Task | None = None
    """The task before it, where it was one write."""
    in_doubt: bool = False
    """It is not over: what came of it is not known."""

    @property
    def outcome(self) -> str:
        """In a word."""
        return "ok" if self.error is None else "error"


Over = tuple[Ended, Instance | None]
"""An action that is over, and its instance as it is now; None for a row that cannot be read."""

ANY_TASK = frozenset(Task)

BEGUN = "begun"
"""The phase of a task whose host was allowed to begin."""
UPLOADING = "uploading"
"""The phase of a task whose host sends an image."""

_STEPS = (
    Step("may_act", "cell_conductor"),
    Step("act", "compute"),
    Step("acted", "cell_conductor"),
)

ACTION_STEPS: dict[str, Step] = {step.name: step for step in _STEPS}
"""The steps of an action on a guest, after the write that begins it: its host asks, acts, reports what came of it."""

_BEFORE_HARD_REBOOT = frozenset(
    {Task.REBOOTING, Task.REBOOTING_HARD, Task.PAUSING, Task.UNPAUSING, Task.SUSPENDING, Task.RESUMING}
)
"""What may hang in a guest, so that a hard reboot is the way out."""

_BEFORE_SOFT_DELETE = _BEFORE_HARD_REBOOT | {
    Task.POWERING_ON,
    Task.POWERING_OFF,
    Task.IMAGE_SNAPSHOT_PENDING,
    Task.IMAGE_SNAPSHOT,
    Task.IMAGE_BACKUP,
    Task.IMAGE_UPLOADING,
}

_BEFORE_EVACUATE = _BEFORE_SOFT_DELETE | {
    Task.RESTORING,
    Task.UPDATING_PASSWORD,
    Task.TRIGGERING_CRASH_DUMP,
    Task.RESCUING,
    Task.UNRESCUING,
    Task.EVACUATE_SPAWNING,
    Task.SWAPPING_VOLUME,
    Task.ATTACHING_VOLUME,
    Task.DETACHING_VOLUME,
    Task.ATTACHING_INTERFACE,
    Task.DETACHING_INTERFACE,
    Task.EXTENDING_VOLUME,
    Task.SNAPSHOTTING_VOLUME,
    Task.DELETING_VOLUME_SNAPSHOT,
}
"""What waits for a host that is lost. A cold move waits for its hosts: a fence takes the server away from it."""

WITH_GUEST = frozenset({State.ACTIVE, State.STOPPED, State.PAUSED, State.SUSPENDED})
"""States that say how the guest of a server is."""

_WITH_INTERFACES = frozenset({State.ACTIVE, State.STOPPED, State.PAUSED})
"""States in which a server gets and loses interfaces."""

_WITH_VOLUMES = _WITH_INTERFACES | {
    State.RESIZED,
    State.SOFT_DELETED,
    State.SHELVED,
    State.SHELVED_OFFLOADED,
}
"""States in which a server gets and loses volumes."""

_SWAPPED_IN = frozenset({State.ACTIVE, State.PAUSED, State.RESIZED})
"""States of a server in which a volume may stand in the place of another."""

SWAP = "swap_volume"
"""The name of the action that has one stand there."""
PLUG, UNPLUG = "plug_volume", "unplug_volume"
"""The names of the actions that give a volume to a guest which is there, and take it away."""
PLUG_INTERFACE, UNPLUG_INTERFACE = "plug_interface", "unplug_interface"
"""The names of the actions that give an interface to a guest which is there, and take it away."""
ASSIST, UNASSIST = "volume_snapshot_create", "volume_snapshot_delete"
"""The names of the actions that make and delete a snapshot of a volume for the volume service."""
EXTEND = "extend_volume"
"""The name of the action that tells a guest of volumes that have become larger."""

_TABLE = (
    Action(
        name="start",
        record="start",
        kind=Kind.GUEST,
        begins_in=frozenset({State.STOPPED}),
        task=Task.POWERING_ON,
        becomes=State.ACTIVE,
        event="compute_start_instance",
        notification="power_on",
        capability=Capability.POWER,
        deadline="task_deadline",
    ),
    Action(
        name="stop",
        record="stop",
        kind=Kind.GUEST,
        begins_in=frozenset({State.ACTIVE, State.ERROR}),
        task=Task.POWERING_OFF,
        becomes=State.STOPPED,
        event="compute_stop_instance",
        notification="power_off",
        capability=Capability.POWER,
        deadline="task_deadline",
    ),
    Action(
        name="reboot_soft",
        record="reboot",
        kind=Kind.GUEST,
        begins_in=frozenset({State.ACTIVE}),
        task=Task.REBOOTING,
        becomes=State.ACTIVE,
        event="compute_reboot_instance",
        notification="reboot",
        capability=Capability.POWER,
        deadline="task_deadline",
    ),
    Action(
        name="reboot_hard",
        record="reboot",
        kind=Kind.GUEST,
        begins_in=WITH_GUEST | {State.ERROR},
        overrides=_BEFORE_HARD_REBOOT,
        task=Task.REBOOTING_HARD,
        becomes=State.ACTIVE,
        event="compute_reboot_instance",
        notification="reboot",
        capability=Capability.POWER,
        deadline="task_deadline",
    ),
    Action(
        name="pause",
        record="pause",
        kind=Kind.GUEST,
        begins_in=frozenset({State.ACTIVE}),
        task=Task.PAUSING,
        becomes=State.PAUSED,
        event="compute_pause_instance",
        notification="pause",
        capability=Capability.PAUSE,
        deadline="task_deadline",
    ),
    Action(
        name="unpause",
        record="unpause",
        kind=Kind.GUEST,
        begins_in=frozenset({State.PAUSED}),
        task=Task.UNPAUSING,
        becomes=State.ACTIVE,
        event="compute_unpause_instance",
        notification="unpause",
        capability=Capability.PAUSE,
        deadline="task_deadline",
    ),
    Action(
        name="suspend",
        record="suspend",
        kind=Kind.GUEST,
        begins_in=frozenset({State.ACTIVE}),
        task=Task.SUSPENDING,
        becomes=State.SUSPENDED,
        event="compute_suspend_instance",
        notification="suspend",
        capability=Capability.SUSPEND,
        deadline="task_deadline",
    ),
    Action(
        name="resume",
        record="resume",
        kind=Kind.GUEST,
        begins_in=frozenset({State.SUSPENDED}),
        task=Task.RESUMING,
        becomes=State.ACTIVE,
        event="compute_resume_instance",
        notification="resume",
        capability=Capability.SUSPEND,
        deadline="task_deadline",
    ),
    Action(
        name="snapshot",
        record="createImage",
        kind=Kind.GUEST,
        begins_in=WITH_GUEST,
        lock_refuses=False,
        task=Task.IMAGE_SNAPSHOT_PENDING,
        arguments=MakeImage,
        phases={BEGUN: Task.IMAGE_SNAPSHOT, UPLOADING: Task.IMAGE_UPLOADING},
        leaves_guest=True,
        event="compute_snapshot_instance",
        notification="snapshot",
        capability=Capability.SNAPSHOT,
        deadline="task_deadline",
    ),
    Action(
        name="snapshot_volume_backed",
        record="createImage",
        kind=Kind.ROW,
        begins_in=WITH_GUEST,
        lock_refuses=False,
        event="compute_snapshot_instance",
        notification="snapshot",
        begins=True,
    ),
    Action(
        name="backup",
        record="createBackup",
        kind=Kind.GUEST,
        begins_in=WITH_GUEST,
        lock_refuses=False,
        task=Task.IMAGE_BACKUP,
        arguments=MakeImage,
        phases={UPLOADING: Task.IMAGE_UPLOADING},
        leaves_guest=True,
        event="compute_backup_instance",
        notification="snapshot",
        capability=Capability.SNAPSHOT,
        deadline="task_deadline",
    ),
    Action(
        name="rescue",
        record="rescue",
        kind=Kind.GUEST,
        begins_in=frozenset({State.ACTIVE, State.STOPPED, State.ERROR}),
        task=Task.RESCUING,
        arguments=RescueGuest,
        has_secrets=True,
        becomes=State.RESCUED,
        event="compute_rescue_instance",
        notification="rescue",
        capability=Capability.RESCUE,
        deadline="task_deadline",
    ),
    Action(
        name="unrescue",
        record="unrescue",
        kind=Kind.GUEST,
        begins_in=frozenset({State.RESCUED}),
        task=Task.UNRESCUING,
        becomes=State.ACTIVE,
        event="compute_unrescue_instance",
        notification="unrescue",
        capability=Capability.RESCUE,
        deadline="task_deadline",
    ),
    Action(
        name="change_password",
        record="changePassword",
        kind=Kind.GUEST,
        begins_in=frozenset({State.ACTIVE}),
        task=Task.UPDATING_PASSWORD,
        has_secrets=True,
        event="compute_set_admin_password",
        capability=Capability.PASSWORD,
        deadline="task_deadline",
    ),
    Action(
        name="trigger_crash_dump",
        record="trigger_crash_dump",
        kind=Kind.GUEST,
        begins_in=frozenset({State.ACTIVE, State.PAUSED, State.RESCUED, State.RESIZED, State.ERROR}),
        task=Task.TRIGGERING_CRASH_DUMP,
        event="compute_trigger_crash_dump",
        notification="trigger_crash_dump",
        capability=Capability.CRASH_DUMP,
        deadline="task_deadline",
    ),
    Action(
        name="soft_delete",
        record="delete",
        kind=Kind.GUEST,
        begins_in=WITH_GUEST | {State.RESCUED, State.ERROR},
        overrides=_BEFORE_SOFT_DELETE,
        task=Task.SOFT_DELETING,
        becomes=State.SOFT_DELETED,
        event="compute_soft_delete_instance",
        notification="soft_delete",
        capability=Capability.POWER,
        deadline="task_deadline",
        quota="given back",
    ),
    Action(
        name="restore",
        record="restore",
        kind=Kind.GUEST,
        begins_in=frozenset({State.SOFT_DELETED}),
        task=Task.RESTORING,
        becomes=State.ACTIVE,
        event="compute_restore_instance",
        notification="restore",
        capability=Capability.POWER,
        deadline="task_deadline",
        quota="charged",
    ),
    Action(
        name="shelve",
        record="shelve",
        kind=Kind.GUEST,
        begins_in=WITH_GUEST,
        task=Task.SHELVING,
        phases={BEGUN: Task.SHELVING_IMAGE_PENDING_UPLOAD, UPLOADING: Task.SHELVING_IMAGE_UPLOADING},
        arguments=ShelveServer,
        becomes=State.SHELVED,
        event="compute_shelve_instance",
        notification="shelve",
        capability=Capability.SNAPSHOT,
        further=frozenset({Capability.POWER}),
        deadline="task_deadline",
    ),
    Action(
        name="shelve_volume_backed",
        record="shelve",
        kind=Kind.GUEST,
        begins_in=WITH_GUEST,
        task=Task.SHELVING,
        arguments=ShelveServer,
        becomes=State.SHELVED,
        event="compute_shelve_instance",
        notification="shelve",
        capability=Capability.POWER,
        deadline="task_deadline",
    ),
    Action(
        name="shelve_offload",
        record="shelveOffload",
        kind=Kind.ROW,
        begins_in=frozenset({State.SHELVED}),
        task=Task.SHELVING_OFFLOADING,
        becomes=State.SHELVED_OFFLOADED,
        event="compute_shelve_offload_instance",
        notification="shelve_offload",
    ),
    Action(
        name="unshelve",
        record="unshelve",
        kind=Kind.GUEST,
        begins_in=frozenset({State.SHELVED}),
        task=Task.UNSHELVING,
        becomes=State.ACTIVE,
        event="compute_unshelve_instance",
        notification="unshelve",
        capability=Capability.POWER,
        deadline="task_deadline",
    ),
    Action(
        name="unshelve_offloaded",
        record="unshelve",
        kind=Kind.REHOST,
        begins_in=frozenset({State.SHELVED_OFFLOADED}),
        task=Task.UNSHELVING,
        phases=MappingProxyType({"spawn": Task.SPAWNING}),
        arguments=UnshelveServer,
        becomes=State.ACTIVE,
        event="compute_unshelve_instance",
        notification="unshelve",
    ),
    Action(
        name="lock",
        record="lock",
        kind=Kind.ROW,
        lock_refuses=False,
        event="api_lock",
        notification="lock",
    ),
    Action(
        name="unlock",
        record="unlock",
        kind=Kind.ROW,
        lock_refuses=False,
        event="api_unlock",
        notification="unlock",
    ),
    Action(
        name="reset_state",
        record="resetState",
        kind=Kind.ROW,
        overrides=ANY_TASK,
        lock_refuses=False,
    ),
    Action(
        name="inject_network_info",
        record="injectNetworkInfo",
        kind=Kind.ROW,
    ),
    *(
        Action(
            name=name,
            record=record,
            kind=Kind.GUEST,
            begins_in=_WITH_INTERFACES,
            task=task,
            arguments=PlugInterface,
            is_repeated=True,
            event=f"compute_{record}",
            notification=notification,
            capability=Capability.ATTACH_INTERFACE,
            deadline="task_deadline",
        )
        for name, record, task, notification in (
            (PLUG_INTERFACE, "attach_interface", Task.ATTACHING_INTERFACE, "interface_attach"),
            (UNPLUG_INTERFACE, "detach_interface", Task.DETACHING_INTERFACE, "interface_detach"),
        )
    ),
    Action(
        name="attach_interface",
        record="attach_interface",
        kind=Kind.ROW,
        begins_in=_WITH_INTERFACES,
        event="compute_attach_interface",
        notification="interface_attach",
        begins=True,
    ),
    Action(
        name="detach_interface",
        record="detach_interface",
        kind=Kind.ROW,
        begins_in=_WITH_INTERFACES,
        event="compute_detach_interface",
        notification="interface_detach",
        begins=True,
    ),
    *(
        Action(
            name=name,
            record=record,
            kind=Kind.GUEST,
            begins_in=_WITH_VOLUMES - {State.SHELVED_OFFLOADED},
            task=task,
            arguments=PlugVolume,
            is_repeated=True,
            event=f"compute_{record}",
            notification=notification,
            capability=Capability.ATTACH_VOLUME,
            deadline="task_deadline",
        )
        for name, record, task, notification in (
            (PLUG, "attach_volume", Task.ATTACHING_VOLUME, "volume_attach"),
            (UNPLUG, "detach_volume", Task.DETACHING_VOLUME, "volume_detach"),
        )
    ),
    Action(
        name="attach_volume",
        record="attach_volume",
        kind=Kind.ROW,
        begins_in=_WITH_VOLUMES,
        event="compute_attach_volume",
        notification="volume_attach",
        begins=True,
    ),
    Action(
        name="detach_volume",
        record="detach_volume",
        kind=Kind.ROW,
        begins_in=_WITH_VOLUMES,
        event="compute_detach_volume",
        notification="volume_detach",
        begins=True,
    ),
    Action(
        name=SWAP,
        record="swap_volume",
        kind=Kind.GUEST,
        begins_in=_SWAPPED_IN,
        task=Task.SWAPPING_VOLUME,
        arguments=SwapVolume,
        is_repeated=True,
        event="compute_swap_volume",
        notification="volume_swap",
        capability=Capability.SWAP_VOLUME,
        deadline="move_deadline",
    ),
    *(
        Action(
            name=name,
            record=name,
            kind=Kind.GUEST,
            begins_in=GUEST_ON_HOST | {State.ERROR},
            lock_refuses=False,
            task=task,
            arguments=AssistSnapshot,
            is_repeated=True,
            event=f"compute_{name}",
            capability=Capability.ASSISTED_SNAPSHOT,
            deadline="task_deadline",
        )
        for name, task in (
            (ASSIST, Task.SNAPSHOTTING_VOLUME),
            (UNASSIST, Task.DELETING_VOLUME_SNAPSHOT),
        )
    ),
    Action(
        name=EXTEND,
        record="extend_volume",
        kind=Kind.GUEST,
        begins_in=WITH_GUEST | {State.RESIZED, State.RESCUED},
        lock_refuses=False,
        task=Task.EXTENDING_VOLUME,
        arguments=ExtendVolumes,
        leaves_guest=True,
        event="compute_extend_volume",
        capability=Capability.EXTEND_VOLUME,
        deadline="task_deadline",
    ),
    Action(
        name="migrate",
        record="migrate",
        kind=Kind.REHOST,
        begins_in=frozenset({State.ACTIVE, State.STOPPED}),
        task=Task.RESIZE_PREP,
        phases=MappingProxyType({"put_aside": Task.RESIZE_MIGRATING, "take_up": Task.RESIZE_FINISH}),
        becomes=State.RESIZED,
        event="cold_migrate",
        notification="resize",
        capability=Capability.MOVE,
        deadline="move_deadline",
    ),
    Action(
        name="resize",
        record="resize",
        kind=Kind.REHOST,
        begins_in=frozenset({State.ACTIVE, State.STOPPED}),
        task=Task.RESIZE_PREP,
        phases=MappingProxyType({"put_aside": Task.RESIZE_MIGRATING, "take_up": Task.RESIZE_FINISH}),
        becomes=State.RESIZED,
        event="cold_migrate",
        notification="resize",
        capability=Capability.MOVE,
        deadline="move_deadline",
        quota="the larger of two",
    ),
    Action(
        name="evacuate",
        record="evacuate",
        kind=Kind.REHOST,
        begins_in=frozenset({State.ACTIVE, State.STOPPED, State.ERROR}),
        overrides=_BEFORE_EVACUATE,
        lock_refuses=False,
        task=Task.EVACUATING,
        phases=MappingProxyType({"spawn": Task.EVACUATE_SPAWNING}),
        arguments=EvacuateTo,
        has_secrets=True,
        event="rebuild_server",
        notification="rebuild",
        capability=Capability.EVACUATE,
        deadline="move_deadline",
    ),
    Action(
        name="rebuild",
        record="rebuild",
        kind=Kind.REBUILD,
        begins_in=frozenset({State.ACTIVE, State.STOPPED, State.ERROR}),
        task=Task.REBUILDING,
        arguments=Rebuild,
        phases=MappingProxyType(
            {
                "rebuild_put_aside": Task.REBUILD_BLOCK_DEVICE_MAPPING,
                "rebuild_spawn": Task.REBUILD_SPAWNING,
            }
        ),
        event="compute_rebuild_instance",
        notification="rebuild",
        capability=Capability.REBUILD,
        deadline="move_deadline",
    ),
    Action(
        name="revert_resize",
        record="revertResize",
        kind=Kind.REHOST,
        begins_in=frozenset({State.RESIZED}),
        task=Task.RESIZE_REVERTING,
        event="compute_revert_resize",
        event_of="target",
        notification="resize_revert",
        deadline="move_deadline",
        quota="given back",
    ),
    Action(
        name="confirm_resize",
        record="confirmResize",
        kind=Kind.ROW,
        begins_in=frozenset({State.RESIZED}),
        event="compute_confirm_resize",
        event_of="source",
        notification="resize_confirm",
        begins=True,
        quota="given back",
    ),
    Action(
        name="live_migrate",
        record="live-migration",
        kind=Kind.REHOST,
        begins_in=frozenset({State.ACTIVE, State.PAUSED}),
        task=Task.MIGRATING,
        event="conductor_live_migrate_instance",
        capability=Capability.LIVE_MIGRATE,
        deadline="move_deadline",
    ),
    Action(
        name="live_abort",
        record="live_migration_cancel",
        kind=Kind.ROW,
        overrides=frozenset({Task.MIGRATING}),
        event="compute_live_migration_abort",
        event_of="source",
        notification="live_migration_abort",
        begins=True,
    ),
    Action(
        name="live_complete",
        record="live_migration_force_complete",
        kind=Kind.ROW,
        begins_in=frozenset({State.ACTIVE}),
        overrides=frozenset({Task.MIGRATING}),
        event="compute_live_migration_force_complete",
        event_of="source",
        notification="live_migration_force_complete",
        begins=True,
    ),
    Action(
        name="delete",
        record="delete",
        kind=Kind.ROW,
        overrides=ANY_TASK,
        task=Task.DELETING,
        becomes=State.DELETED,
        event="compute_terminate_instance",
        notification="delete",
        quota="given back",
    ),
)

ACTIONS: dict[str, Action] = {action.name: action for action in _TABLE}

PLUGGING = frozenset(task for name in (PLUG, UNPLUG, PLUG_INTERFACE, UNPLUG_INTERFACE) for task in ACTIONS[name].tasks)
"""Tasks of a server whose host gives it a volume or an interface, or takes one away."""
SECRET_TASKS = frozenset(task for action in _TABLE if action.has_secrets for task in action.tasks)
"""Tasks whose actions have secret arguments."""

ON_HOSTS = frozenset(task for action in _TABLE if action.kind is Kind.GUEST for task in action.tasks)
"""Tasks that a server's host carries out."""
REPEATED = frozenset(task for action in _TABLE if action.is_repeated for task in action.tasks)
"""Those of which only the host knows the end, however long it is silent."""


def of_record(record: str) -> Action:
    """Return the first action that leaves this instance action."""
    return next(action for action in _TABLE if action.record == record)


def of_task(task: Task) -> Action:
    """Return the first action that has this task: what a row is under that does not say which."""
    return next(action for action in _TABLE if task in action.tasks)
