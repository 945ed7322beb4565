"""Whatever a create says of disks: the answer names a field, or the disks go together."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from skep.domain.block_devices import MOST_LOCAL, AskedDevice, AskedDisks, block_devices, boot_device
from skep.domain.decoding import json_decoder
from skep.domain.errors import BadRequest
from skep.domain.flavors import Flavor
from skep.domain.images import Image

IMAGE = "70a599e0-31e7-49b7-b260-868f441e862b"
THING = "90a599e0-31e7-49b7-b260-868f441e862b"

NAMES = st.sampled_from([None, "vda", "/dev/vda", "vdb", "sdc", ""])
SIZES = st.sampled_from([None, 0, 1, 2, "3", "many", -1])
V2 = st.fixed_dictionaries(
    {},
    optional={
        "source_type": st.sampled_from(["image", "volume", "snapshot", "blank", "moon", None]),
        "destination_type": st.sampled_from(["local", "volume", None]),
        "uuid": st.sampled_from([IMAGE, THING, None, ""]),
        "boot_index": st.sampled_from([0, 1, 2, -1, None, "0", "x"]),
        "volume_size": SIZES,
        "volume_type": st.sampled_from([None, "fast", ""]),
        "guest_format": st.sampled_from([None, "swap", "ext4"]),
        "device_name": NAMES,
        "disk_bus": st.sampled_from([None, "virtio", "bicycle"]),
        "delete_on_termination": st.sampled_from([True, False, None, "no"]),
        "no_device": st.sampled_from([None, True, "false"]),
        "tag": st.sampled_from([None, "data"]),
        "unknown": st.just(7),
    },
)
V1 = st.fixed_dictionaries(
    {},
    optional={
        "virtual_name": st.sampled_from([None, "swap", "ephemeral0", "ami"]),
        "volume_id": st.sampled_from([None, THING]),
        "snapshot_id": st.sampled_from([None, THING]),
        "volume_size": SIZES,
        "device_name": NAMES,
        "no_device": st.sampled_from([None, True]),
    },
)
GOOD = st.sampled_from(
    [
        {"source_type": "blank", "destination_type": "volume", "volume_size": 1},
        {"source_type": "volume", "destination_type": "volume", "uuid": THING, "boot_index": 1},
        {"source_type": "snapshot", "uuid": THING, "boot_index": None},
        {"source_type": "blank", "guest_format": "swap"},
        {"source_type": "blank", "volume_size": 1},
    ]
)
ROOTS = st.sampled_from(
    [
        {"source_type": "image", "uuid": IMAGE, "boot_index": 0},
        {"source_type": "image", "destination_type": "volume", "uuid": IMAGE, "boot_index": "0", "volume_size": 1},
        {"source_type": "volume", "uuid": THING, "boot_index": 0},
    ]
)
LISTS = st.one_of(
    st.lists(V2, max_size=4).map(tuple),
    st.builds(lambda root, more: (root, *more), ROOTS, st.lists(st.one_of(GOOD, V2), max_size=3)),
    st.just(()),
)
FLAVORS = st.builds(
    Flavor,
    flavorid=st.just("1"),
    name=st.just("f"),
    vcpus=st.just(1),
    memory_mb=st.just(1),
    ephemeral_gb=st.sampled_from([0, 2]),
    swap_mb=st.sampled_from([0, 512, 2048]),
)


@given(
    v2=LISTS,
    v1=st.one_of(st.just(()), st.lists(V1, max_size=3).map(tuple)),
    flavor=FLAVORS,
    image=st.sampled_from([None, Image(id=IMAGE)]),
    count=st.sampled_from([1, 1, 2]),
)
def test_any_disks(v2: Any, v1: Any, flavor: Flavor, image: Image | None, count: int) -> None:
    found: tuple[AskedDevice, ...] = ()
    refusal = "Invalid input for field/attribute server."
    try:
        found = block_devices(AskedDisks(image=image, v2=v2, v1=v1, max_count=count), flavor)
    except BadRequest as refused:
        refusal = str(refused)
    assert refusal.startswith("Invalid input for field/attribute server.")
    if not found:
        return
    devices = [one.device for one in found]
    order = sorted(one.boot_index for one in devices if one.boot_index is not None and one.boot_index >= 0)
    assert order == list(range(len(order)))
    assert boot_device(found).device.boot_index == 0
    assert sum(one.destination_type == "local" for one in devices) <= MOST_LOCAL
    assert sum(one.is_swap for one in devices) <= 1
    assert any(one.is_ephemeral for one in devices) or not flavor.ephemeral_gb
    assert sum(one.volume_size or 0 for one in devices if one.is_ephemeral) <= flavor.ephemeral_gb
    for one in devices:
        assert one.destination_type == "volume" or one.source_type in ("blank", "image")
        assert one.source_type == "blank" or one.uuid
        if one.destination_type == "volume" and one.source_type in ("blank", "image"):
            assert one.volume_size
        assert one.source_type != "volume" or count == 1
    assert json_decoder(tuple[AskedDevice, ...]).decode(msgspec.json.encode(found)) == found
