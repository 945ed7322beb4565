"""A cloud without a volume service, and what volumes say of the servers that they were made for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.domain.block_devices import AskedDisks, BlockDevice, block_devices
from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest, NotFound
from skep.domain.flavors import Flavor
from skep.domain.ids import InstanceUuid, ProjectId, RequestId
from skep.domain.images import Image
from skep.neighbours.volumes.absent import GONE, NO_VOLUMES, NoVolumes
from skep.neighbours.volumes.base import (
    AskedAttachment,
    AskedVolumes,
    ChosenVolumes,
    EndedVolumes,
    VolumeLabel,
    WantedAttachments,
    WantedConnection,
    WantedVolumes,
)

IMAGE = "70a599e0-31e7-49b7-b260-868f441e862b"
THING = "90a599e0-31e7-49b7-b260-868f441e862b"
FLAVOR = Flavor(flavorid="1", name="f", vcpus=1, memory_mb=1, root_gb=1, swap_mb=1024)
ROOT = {"source_type": "image", "uuid": IMAGE, "boot_index": 0}
CONTEXT = RequestContext(request_id=RequestId("req-1"))
SERVER = InstanceUuid(IMAGE)


async def chosen(**said: Any) -> ChosenVolumes:
    image = Image(id=IMAGE, properties=said.pop("properties", {}))
    devices = block_devices(AskedDisks(image=image, **said), FLAVOR)
    return await NoVolumes().choose(AskedVolumes(devices=devices, zone="east"), CONTEXT, "token")


async def test_disks_that_are_no_volumes_are_taken_as_they_are() -> None:
    found = await chosen(v2=(ROOT,))
    assert [one.device.source_type for one in found.devices] == ["image", "blank"]
    assert (found.zone, found.boot) == ("east", None)


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("block_device_mapping_v2[1].source_type", {"v2": (ROOT, {"source_type": "volume", "uuid": THING})}),
        ("block_device_mapping_v2[1].source_type", {"v2": (ROOT, {"source_type": "snapshot", "uuid": THING})}),
        (
            "block_device_mapping_v2[1].destination_type",
            {"v2": (ROOT, {"source_type": "blank", "destination_type": "volume", "volume_size": 1})},
        ),
        ("block_device_mapping[0].volume_id", {"v1": ({"volume_id": THING},)}),
        ("block_device_mapping[0].snapshot_id", {"v1": ({"snapshot_id": THING},)}),
        ("imageRef", {"properties": {"block_device_mapping": json.dumps([{"snapshot_id": THING}])}}),
    ],
)
async def test_what_names_a_volume_is_refused_by_its_field(field: str, said: dict[str, Any]) -> None:
    with pytest.raises(BadRequest) as refused:
        await chosen(**said)
    assert f"attribute server.{field}. Value" in str(refused.value)
    assert "no volume service is configured" in str(refused.value)
    assert NO_VOLUMES in str(refused.value) or field == "imageRef"


async def test_no_volume_can_be_attached() -> None:
    with pytest.raises(NotFound, match="no volume service"):
        await NoVolumes().attachable(AskedAttachment(volume_id=THING, zone="east"), CONTEXT, "token")


async def test_servers_that_were_asked_for_while_there_were_volumes() -> None:
    volumes = NoVolumes()
    volume = BlockDevice(source_type="volume", destination_type="volume", uuid=THING)
    wanted = WantedVolumes(instance=SERVER, project_id=ProjectId("p"), devices=(volume,))
    local = WantedVolumes(instance=SERVER, project_id=ProjectId("p"), devices=(BlockDevice(source_type="blank"),))
    assert await volumes.make([wanted, local]) == [GONE, ()]
    reserved = [WantedAttachments(instance=SERVER, volume_ids=one) for one in ((THING,), ())]
    assert await volumes.reserve(reserved) == [GONE, ()]
    assert await volumes.connect([WantedConnection(attachment_id=THING, connector={})]) == [GONE]
    assert await volumes.complete([THING]) == [GONE]
    await volumes.detach([THING])
    assert await volumes.of_servers([SERVER]) == {SERVER: ()}
    assert await volumes.discard([EndedVolumes(instance=SERVER, project_id=ProjectId("p"))]) == [()]


@given(st.uuids(), st.integers(0, 99), st.booleans())
def test_a_label_is_read_as_it_was_written(server: object, position: int, ends: bool) -> None:
    label = VolumeLabel(server=InstanceUuid(str(server)), position=position, ends=ends)
    assert VolumeLabel.of({**label.metadata(), "mine": "too"}) == label


@pytest.mark.parametrize("key", ["skep_server", "skep_position", "skep_made"])
@pytest.mark.parametrize("value", [None, "", "-1", "²", "1" * 5000])
def test_what_is_no_label(key: str, value: str | None) -> None:
    metadata = VolumeLabel(server=SERVER, position=0, ends=True).metadata()
    if value is None:
        del metadata[key]
    elif key == "skep_server":
        metadata[key] = ""
    else:
        metadata[key] = value
    assert VolumeLabel.of(metadata) is None
