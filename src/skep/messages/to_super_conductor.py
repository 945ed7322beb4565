"""Hints to the super conductor. It finds its work in rows of the API database and of the cells."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from skep.domain.host_networks import HostNetworkChanges, HostNetworks
from skep.domain.ids import CellUuid, InstanceUuid, RequestId
from skep.messages.base import Call, Cast
from skep.messages.to_cell_conductor import SealedConnections, SealedContents, SealedTicket


class ScheduleAndBuildInstances(Cast, frozen=True, kw_only=True):
    """Build requests of this request wait in the API database."""

    wire_name: ClassVar[str] = "ScheduleAndBuildInstances"
    request_id: RequestId


class DeleteInstances(Cast, frozen=True, kw_only=True):
    """Mappings have a delete intent that no super conductor has acted on."""

    wire_name: ClassVar[str] = "DeleteInstances"


class OperatorStateChanged(Cast, frozen=True, kw_only=True):
    """Cells, hosts' settings or aggregates changed in the API database."""

    wire_name: ClassVar[str] = "OperatorStateChanged"


class CellChanged(Cast, frozen=True, kw_only=True):
    """A row of this cell reached a state that concerns the API level: an agent to map, a server gone."""

    wire_name: ClassVar[str] = "CellChanged"
    cell: CellUuid


class OpenContents(Call[SealedContents], frozen=True, kw_only=True):
    """A host of this cell builds a server, and has no key for its password and files: seal them for its agent."""

    wire_name: ClassVar[str] = "OpenContents"
    reply_type: ClassVar[Any] = SealedContents
    cell: CellUuid
    instance: InstanceUuid
    attempt: int
    host: str
    task_id: str = ""
    """Of the action whose secret arguments are meant instead; empty: those of the build."""


class IssueTicket(Call[SealedTicket], frozen=True, kw_only=True):
    """A host of this cell moves the bytes of an image: write a ticket for it, sealed for the host's agent."""

    wire_name: ClassVar[str] = "IssueTicket"
    reply_type: ClassVar[Any] = SealedTicket
    cell: CellUuid
    instance: InstanceUuid
    attempt: int
    host: str
    image: str
    task_id: str = ""
    """Of the action that needs it, whose sealed arguments have to name the image; empty: the build."""
    store: bool = False
    """As `RequestTicket.store`."""
    question: str = ""
    """As `RequestTicket.question`."""


class HostNetworksSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What a host has to bring of networks, and what tells that it is still so (`HostLook`)."""

    brought: bool = True
    """As `NetworksOfHost.brought`."""
    version: str = ""
    networks: HostNetworks | None = None
    """None: those of the version that the host has, unless they are `packed`."""
    packed: bytes | None = None
    """As `NetworksOfHost.packed`."""
    subjects: tuple[str, ...] = ()
    change: int = 0


class LookAtHostNetworks(Call[HostNetworksSeen], frozen=True, kw_only=True):
    """A host of this cell brings networks to its guests, and asks which."""

    wire_name: ClassVar[str] = "LookAtHostNetworks"
    reply_type: ClassVar[Any] = HostNetworksSeen
    cell: CellUuid
    host: str
    tunnel_address: str | None = None
    """As `ReadNetworks.tunnel_address`."""
    version: str = ""
    """As `ReadNetworks.version`."""
    unpacks: bool = False
    """As `ReadNetworks.unpacks`."""


class ReadNetworkChanges(Call[HostNetworkChanges], frozen=True, kw_only=True):
    """A conductor of this cell knows what its hosts have to bring: what has changed?"""

    wire_name: ClassVar[str] = "ReadNetworkChanges"
    reply_type: ClassVar[Any] = HostNetworkChanges
    cell: CellUuid
    since: int
    """The last change that it knows of."""


class ReadConnections(Call[SealedConnections], frozen=True, kw_only=True):
    """A host of this cell asks how it reaches the volumes of a server: seal it for the host's agent."""

    wire_name: ClassVar[str] = "ReadConnections"
    reply_type: ClassVar[Any] = SealedConnections
    cell: CellUuid
    instance: InstanceUuid
    attempt: int
    host: str
    attachments: tuple[str, ...] = ()
    """As `RequestConnections.attachments`."""
