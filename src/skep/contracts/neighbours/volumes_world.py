"""What the contract of volumes is told of: a volume service, its users, and servers that are to have volumes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

import httpx
import msgspec

from skep.contracts.eventually import eventually
from skep.domain.block_devices import BlockDevice
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid, ProjectId, RequestId, new_uuid
from skep.neighbours.volumes.base import (
    SERVER,
    DiskVolume,
    EndedVolumes,
    ServerVolumes,
    VolumesOfUsers,
    VolumesRefused,
    WantedAttachments,
    WantedConnection,
    WantedVolumes,
)

HEADERS = {"OpenStack-API-Version": "volume 3.44"}
CONNECTOR = {
    "host": "host1",
    "ip": "127.0.0.1",
    "initiator": "iqn.1993-08.org.example:host1",
    "platform": "x86_64",
    "os_type": "linux",
    "multipath": False,
    "mountpoint": "/dev/vdb",
}


class Volumes(VolumesOfUsers, ServerVolumes, Protocol):
    """Both ports towards volumes."""


class VolumesPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A volume service in which the contract works as the users `demo`, a member of his project, and `admin`."""

    url: str
    """With `/v3`."""
    tokens: Mapping[str, str]
    projects: Mapping[str, str]
    image_id: str
    """Of an image that volumes of 1 GiB can be made of."""
    shared_type: str
    """The type of volumes that several servers may have at a time."""
    zone: str = "nova"
    """Where volumes are for which no zone is named."""

    def __repr__(self) -> str:
        """Leaves the tokens out."""
        return f"VolumesPlace(url={self.url!r})"


class VolumesWorld:
    """The volume service as its users have it, and the adapter that is under test."""

    def __init__(self, place: VolumesPlace, client: httpx.AsyncClient, volumes: Volumes) -> None:
        self.place = place
        self.client = client
        self.volumes = volumes
        self.project = ProjectId(place.projects["demo"])

    async def ask(self, method: str, path: str, body: Any = None, *, by: str = "demo") -> Any:
        """Ask for what must succeed; return what the first key of the answer has."""
        answer = await self.send(method, path, body, by=by)
        assert answer.status_code < 300, (method, path, body, answer.text)
        return next(iter(answer.json().values())) if answer.content else None

    async def send(self, method: str, path: str, body: Any = None, *, by: str = "demo") -> httpx.Response:
        """Ask; return the answer, which may be a refusal."""
        headers = {"X-Auth-Token": self.place.tokens[by], **HEADERS}
        return await self.client.request(method, f"{self.place.url}/{path}", json=body, headers=headers)

    async def volume(self, *, by: str = "demo", **fields: Any) -> str:
        """Make a volume of a user's; return its id once it is available."""
        made = await self.ask("POST", "volumes", {"volume": {"size": 1, **fields}}, by=by)
        await self.becomes(made["id"], "available", by=by)
        return str(made["id"])

    async def snapshot(self, volume_id: str) -> str:
        """Make a snapshot of a volume; return its id once it is available."""
        made = await self.ask("POST", "snapshots", {"snapshot": {"volume_id": volume_id, "name": "of a test"}})

        async def there() -> bool:
            found = await self.ask("GET", f"snapshots/{made['id']}")
            return bool(found["status"] == "available")

        await eventually(there, "the snapshot is available")
        return str(made["id"])

    async def set_bootable(self, volume_id: str) -> None:
        """Say that servers may boot from a volume."""
        await self.ask("POST", f"volumes/{volume_id}/action", {"os-set_bootable": {"bootable": True}})

    async def shown(self, volume_id: str, *, by: str = "demo") -> Any:
        """Return a volume as its user sees it; None: it is gone."""
        answer = await self.send("GET", f"volumes/{volume_id}", by=by)
        if answer.status_code == 404:
            return None
        assert answer.status_code == 200, answer.text
        return answer.json()["volume"]

    async def status(self, volume_id: str, *, by: str = "demo") -> str:
        """Return the status of a volume; `gone` for one that is not there."""
        found = await self.shown(volume_id, by=by)
        return "gone" if found is None else str(found["status"])

    async def becomes(self, volume_id: str, status: str, *, by: str = "demo") -> None:
        """Wait until a volume has this status."""

        async def has() -> bool:
            found = await self.status(volume_id, by=by)
            assert found == status or "error" not in found
            return found == status

        await eventually(has, f"volume {volume_id} is {status}")

    async def made_for(self, server: str) -> list[Any]:
        """Return the volumes of the project that say that they were made for a server."""
        query = httpx.QueryParams(metadata=json.dumps({SERVER: server}))
        found: list[Any] = await self.ask("GET", f"volumes/detail?{query}")
        return found

    async def attached(self, server: InstanceUuid) -> list[tuple[str, str]]:
        """Return the volumes that a server has, and the status of each attachment."""
        found = (await self.volumes.of_servers([server]))[server]
        return sorted((one.volume_id, one.status) for one in found)

    def server(self) -> InstanceUuid:
        """Return the id of a server that nobody knows yet."""
        return InstanceUuid(new_uuid())

    def wanted(self, server: InstanceUuid, *devices: BlockDevice, **said: Any) -> WantedVolumes:
        """Return the disks that a server is to have."""
        return WantedVolumes(instance=server, project_id=self.project, devices=devices, **said)

    async def given(self, wanted: WantedVolumes) -> tuple[DiskVolume, ...]:
        """Make the volumes of a server; return them once all are ready."""

        async def made() -> tuple[DiskVolume, ...] | None:
            [found] = await self.volumes.make([wanted])
            assert not isinstance(found, VolumesRefused), found
            return found if all(one.is_ready for one in found) else None

        found = await eventually(made, "the volumes of the server are ready")
        assert found is not None
        return found

    async def refused(self, wanted: WantedVolumes) -> str:
        """Return why a server does not get its volumes."""
        [found] = await self.volumes.make([wanted])
        assert isinstance(found, VolumesRefused), found
        return found.message

    async def reserved(self, server: InstanceUuid, *volume_ids: str, beside: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Keep volumes for a server."""
        wanted = WantedAttachments(instance=server, volume_ids=volume_ids, beside=beside)
        [found] = await self.volumes.reserve([wanted])
        assert not isinstance(found, VolumesRefused), found
        return found

    async def in_use(self, server: InstanceUuid, volume_id: str) -> str:
        """Give a server a volume; return the attachment."""
        [attachment] = await self.reserved(server, volume_id)
        [connection] = await self.volumes.connect([WantedConnection(attachment_id=attachment, connector=CONNECTOR)])
        assert not isinstance(connection, VolumesRefused), connection
        assert await self.volumes.complete([attachment]) == [None]
        return attachment

    def ended(self, server: InstanceUuid, **said: Any) -> EndedVolumes:
        """Return a server that needs its volumes no more."""
        return EndedVolumes(instance=server, project_id=self.project, **said)

    def asking(self, by: str = "demo") -> tuple[RequestContext, str]:
        """Return what tells who asks: the context and the token."""
        roles = ("admin",) if by == "admin" else ("member",)
        project = ProjectId(self.place.projects[by])
        return RequestContext(request_id=RequestId("req-1"), project_id=project, roles=roles), self.place.tokens[by]


def blank(**said: Any) -> BlockDevice:
    """Return a disk that is a new volume."""
    usual: dict[str, Any] = {"volume_size": 1, "delete_on_termination": True, **said}
    return BlockDevice(source_type="blank", destination_type="volume", **usual)


def made_of(source: Any, uuid: str, **said: Any) -> BlockDevice:
    """Return a disk that is a volume, made of an image or a snapshot, or a user's."""
    usual: dict[str, Any] = {"delete_on_termination": True, **said}
    return BlockDevice(source_type=source, destination_type="volume", uuid=uuid, **usual)
