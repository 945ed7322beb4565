"""What an agent writes down: the entries of a host's journal, one JSON object each."""

from __future__ import annotations

from typing import Literal

import msgspec

from skep.compute.drivers.base import NamedResource
from skep.domain.actions import ACTIONS
from skep.domain.builds import BuildFailure
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance, PowerState, Task
from skep.domain.providers import Allocation
from skep.domain.resources import Resources
from skep.domain.timelines import Moment
from skep.messages.to_compute import OF_CHANGE_POWER

Outcome = Literal["built", "failed", "destroyed", "task"]


class BuildAccepted(msgspec.Struct, frozen=True, kw_only=True, tag="accepted", tag_field="entry", omit_defaults=True):
    """The ledger counts the build. Holds all that is needed to go on with it after a restart."""

    at: int
    instance: Instance
    attempt: int
    resources: Resources
    context: RequestContext
    allocation: Allocation | None = None
    expected_end: int | None = None
    secrets: bytes | None = None
    """adminPass and injected files, sealed as they came."""
    prepares: tuple[NamedResource, ...] = ()
    """What will be made for the attempt, in that order; whatever becomes of it, each is undone. Repeated entries of one
    attempt differ in this and in `received` only. Agents of before 0.7.0 leave it out."""
    move: str = ""
    """UUID of the migration whose target the attempt is: nothing is begun by itself then. Empty: a build."""
    replaces: int = 0
    """The attempt of the server on this host whose place it takes, with the same room; 0: none."""
    received: bool = False
    """The disks of the move are there, whole: from here on they are the server's, and are not received again."""


class SpawnGranted(msgspec.Struct, frozen=True, kw_only=True, tag="spawn_granted", tag_field="entry"):
    """The cell conductor said yes: from here on the hypervisor may hold something of this attempt."""

    instance: InstanceUuid
    attempt: int
    moment: Moment | None = None
    """Of the cell's database: one that does not hold it went back in time."""


class GuestBuilt(msgspec.Struct, frozen=True, kw_only=True, tag="built", tag_field="entry"):
    """The guest runs. Waits for its acknowledgement."""

    instance: InstanceUuid
    attempt: int
    resources: Resources
    launched_at: int
    power_state: PowerState
    allocation: Allocation | None = None
    image_properties: dict[str, str] = {}
    """Those of the server's image that placement may weigh."""
    expected_end: int | None = None
    moment: Moment | None = None
    """That of the permission to spawn."""
    described: Instance | None = None
    """The server as the cell conductor told of it: should the cell lose its row, only the host knows."""
    prepares: tuple[NamedResource, ...] = ()
    """What was made for the attempt before its guest."""
    aside: str = ""
    """UUID of the migration for which the guest is put aside, or about to be: this host never starts it until it is
    taken back. Empty: the guest is there. A repeated entry of the attempt changes this."""
    boot: str = ""
    """Names the boot of the machine in which a guest that goes live was put aside. Agents of before 0.11.0 leave it
    out."""


class BuildFailed(msgspec.Struct, frozen=True, kw_only=True, tag="failed", tag_field="entry", omit_defaults=True):
    """The attempt was refused or failed. Waits for its acknowledgement."""

    at: int
    instance: InstanceUuid
    attempt: int
    failure: BuildFailure
    left_behind: bool = False
    """Its clean-up failed: the host may still hold something of it, so the ledger goes on counting it."""


class LeftoverRemoved(msgspec.Struct, frozen=True, kw_only=True, tag="leftover_removed", tag_field="entry"):
    """What a failed clean-up had left is gone."""

    instance: InstanceUuid
    attempt: int


class TerminateAsked(msgspec.Struct, frozen=True, kw_only=True, tag="terminate", tag_field="entry", omit_defaults=True):
    """Everything up to this attempt is to be destroyed."""

    instance: InstanceUuid
    attempt: int
    deleted: bool = False
    """Because the server was deleted."""


class GuestDestroyed(msgspec.Struct, frozen=True, kw_only=True, tag="destroyed", tag_field="entry"):
    """Nothing up to this attempt is left. Waits for its acknowledgement."""

    at: int
    instance: InstanceUuid
    attempt: int


class TaskOver(msgspec.Struct, frozen=True, kw_only=True, tag="task", tag_field="entry", omit_defaults=True):
    """An action on a guest ended. Waits for its acknowledgement."""

    at: int
    instance: InstanceUuid
    attempt: int
    task: Task
    """One that agents of before 0.7.0 can read, too: `stand_in` of the action."""
    task_id: str
    power_state: PowerState
    error: str | None = None
    begun: bool = True
    """False: the cell conductor said no, or the driver did not begin: the guest was not touched."""
    gone: bool = False
    """The hypervisor was asked after the error and has no guest of the server. Agents of before 0.7.0 leave it out."""
    rescued: bool = False
    """After an error: the guest has a rescue disk in front of its own."""
    action: str = ""
    """Its name. Empty: written by an agent of before 0.7.0, whose actions are one with their tasks."""


def stand_in(action: str) -> Task:
    """Return the task that a journal names for an action: its own, or for one that older agents cannot read a reboot.

    Who then tells of it is understood, for the id of the task says which action it was.
    """
    known = ACTIONS.get(action)
    task = known.task if known is not None else None
    return task if task in OF_CHANGE_POWER else Task.REBOOTING


class Acknowledged(
    msgspec.Struct, frozen=True, kw_only=True, tag="acknowledged", tag_field="entry", omit_defaults=True
):
    """The cell conductor has stored an outcome, or (`taken`) has allowed a task to begin."""

    instance: InstanceUuid
    outcome: Outcome
    attempt: int = 0
    task_id: str = ""
    taken: bool = False
    """The host begins the task now. Agents of before 0.6.0 read it as an acknowledgement of nothing, and go on."""
    moment: Moment | None = None
    """Of the cell's database when it stored that the guest runs."""


class Remembered(msgspec.Struct, frozen=True, kw_only=True, tag="remembered", tag_field="entry", omit_defaults=True):
    """What is left of many entries about one instance when a journal is compacted."""

    instance: InstanceUuid
    highest: int
    terminate_up_to: int = 0
    destroyed_up_to: int = 0
    destroyed_waits: bool = False
    deleted_up_to: int = 0
    over: tuple[int, ...] = ()
    left_behind: tuple[int, ...] = ()
    prepared: dict[int, tuple[NamedResource, ...]] = {}
    """What may have been made for attempts that are left behind."""


Entry = (
    BuildAccepted
    | SpawnGranted
    | GuestBuilt
    | BuildFailed
    | LeftoverRemoved
    | TerminateAsked
    | GuestDestroyed
    | TaskOver
    | Acknowledged
    | Remembered
)
