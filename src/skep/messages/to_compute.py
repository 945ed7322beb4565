"""Hints to the agent on a host. The rows of its cell say what is true; the host's journal says what was done."""

from __future__ import annotations

from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.instances import Instance, Task
from skep.domain.providers import Allocation
from skep.domain.resources import Resources
from skep.messages.base import Cast


class BuildAndRunInstance(Cast, frozen=True, kw_only=True):
    """Build this attempt. A repeat of what the journal knows is answered from the journal."""

    context: RequestContext
    instance: Instance
    attempt: int
    node: NodeUuid
    resources: Resources
    allocation: Allocation | None = None
    """Which CPUs, pages and devices the server gets; None: only flat amounts."""
    secrets: bytes | None = None
    """adminPass and injected files, encrypted; None when there are none."""
    expected_end: int | None = None
    """When the server is expected to be gone, microseconds since the epoch; None: nobody knows."""


class TerminateInstance(Cast, frozen=True, kw_only=True):
    """Destroy and undo whatever bears this instance, up to and including `attempt`."""

    context: RequestContext
    instance: InstanceUuid
    attempt: int


class ChangePower(Cast, frozen=True, kw_only=True):
    """Start, stop or reboot the guest. A repeat of a finished `task_id` is answered from the journal."""

    context: RequestContext
    instance: InstanceUuid
    attempt: int
    task: Task
    task_id: str


class ReportHostNow(Cast, frozen=True, kw_only=True):
    """The host's state is unknown to the schedulers (a new epoch, say): report in full at once."""
