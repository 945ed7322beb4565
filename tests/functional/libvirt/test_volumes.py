"""Volumes of real guests: files of the host, of a volume service in memory. What they are is what guests say."""

from __future__ import annotations

import os
import re
import subprocess
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import serving_cloud, signed_in
from tests.functional.libvirt.test_cloud import with_qemu
from tests.functional.libvirt.test_networks import Guests
from tests.support import tiny_guests
from tests.support.libvirt_hosts import PARTS, host_directory
from tests.support.memory_volumes import MemoryVolumes
from tests.support.tiny_guests import tiny_image

pytestmark = [*PARTS, *tiny_guests.PARTS, pytest.mark.timeout(600)]

GIB = 1 << 30
NEWEST = "2.104"
SERIAL = 20
"""Characters of the id of a volume that virtio shows."""
LOOKS = """#!/bin/sh
mkdir -p /tmp/of
look() {
    for one in /sys/block/vd*; do
        serial=$(cat "$one/serial")
        [ -n "$serial" ] || continue
        words=none
        if mount -t ext4 "/dev/${one##*/}" /tmp/of 2>/dev/null; then
            [ -f /tmp/of/words ] || hostname >/tmp/of/words
            words=$(cat /tmp/of/words)
            umount /tmp/of
        fi
        echo "VOLUME $serial $(cat "$one/size") $words"
    done
    echo LOOKED
}
(while :; do
    look >/tmp/now
    cmp -s /tmp/now /tmp/before || cat /tmp/now >/dev/console
    cp /tmp/now /tmp/before
    sleep 1
done) &
"""
"""What each guest runs: whenever its volumes have changed it says which it has, how many sectors each has, and what is
in the file of one that has a file system. It writes its name there first."""


class VolumeFiles:
    """Volumes that are files of the host; only what is written has room."""

    def __init__(self, volumes: MemoryVolumes) -> None:
        self.volumes = volumes
        self.directory = host_directory() / "volumes"
        self.directory.mkdir(exist_ok=True)
        self.directory.chmod(0o711)  # QEMU's user has to pass it

    def new(self, *, image: Path | None = None, system: bool = False, **data: Any) -> str:
        """Make a volume of a GiB: empty, with the bytes of an image, or with a file system."""
        made = self.volumes.new_volume()
        path = self.directory / made
        path.touch(mode=0o600)
        if image is not None:
            subprocess.run(["qemu-img", "convert", "-f", "qcow2", "-O", "raw", image, path], check=True)
        os.truncate(path, GIB)
        if system:
            subprocess.run(["mkfs.ext4", "-q", "-F", path], check=True)
        self.volumes.reached[made] = ("local", {"device_path": str(path), **data})
        return made

    def path(self, volume: str) -> Path:
        return Path(self.volumes.reached[volume][1]["device_path"])

    def grow(self, volume: str) -> None:
        """Make a volume larger by a GiB, as the volume service does."""
        size = self.volumes.volumes[volume].size + 1
        os.truncate(self.path(volume), size * GIB)
        self.volumes.volumes[volume] = msgspec.structs.replace(self.volumes.volumes[volume], size=size)

    def mounts(self, volume: str) -> int:
        """Return how often the file system of a volume was mounted."""
        said = subprocess.run(["dumpe2fs", "-h", self.path(volume)], check=True, capture_output=True, text=True).stdout
        return int(re.findall(r"Mount count: +(\d+)", said)[0])

    def moves(self, volume: str) -> str:
        """Begin to move a volume to another storage; return the volume that is made for that."""
        self.volumes.migrating.add(volume)
        return self.new()

    async def has_moved(self, volume: str, other: str) -> None:
        """Wait until a volume is where the other one was made, and forget what was in its place before."""

        async def moved() -> bool:
            return (volume, other, False) in self.volumes.moved

        await eventually(moved, "the volume has moved")
        self.path(volume).unlink()
        self.volumes.reached[volume] = self.volumes.reached.pop(other)

    async def are_free(self, *volumes: str) -> None:
        async def free() -> bool:
            return not any(self.volumes.of(one) for one in volumes)

        await eventually(free, "the volumes are free")


class GuestsWithVolumes(Guests):
    """A cloud whose host runs QEMU, and its user."""

    files: VolumeFiles

    async def with_disks(self, name: str, *disks: dict[str, Any]) -> str:
        wanted = {"name": name, "flavorRef": "1", "config_drive": True, "networks": "none"}
        told = {"user_data": b64encode(LOOKS.encode()).decode(), "block_device_mapping_v2": list(disks)}
        answer = await self.session.ask("POST", "/servers", {"server": wanted | told}, version=NEWEST)
        assert answer.status_code == 202, answer.text
        uuid = str(answer.json()["server"]["id"])
        await self.calm(uuid, "ACTIVE")
        return uuid

    async def attach(self, uuid: str, volume: str) -> None:
        body = {"volumeAttachment": {"volumeId": volume}}
        answer = await self.session.ask("POST", f"/servers/{uuid}/os-volume_attachments", body, version=NEWEST)
        assert answer.status_code == 202, answer.text

    async def detach(self, uuid: str, volume: str) -> None:
        answer = await self.session.ask("DELETE", f"/servers/{uuid}/os-volume_attachments/{volume}", version=NEWEST)
        assert answer.status_code == 202, answer.text
        await self.files.are_free(volume)

    async def goes_on_elsewhere(self, uuid: str, volume: str) -> None:
        """Move a volume that a guest uses to another storage: the guest mounts its file system there as before."""
        other = self.files.moves(volume)
        body = {"volumeAttachment": {"volumeId": other}}
        path = f"/servers/{uuid}/os-volume_attachments/{volume}"
        answer = await self.session.ask("PUT", path, body, version=NEWEST)
        assert answer.status_code == 202, answer.text
        await self.files.has_moved(volume, other)
        before = self.files.mounts(volume)

        async def mounted() -> bool:
            return self.files.mounts(volume) > before

        await eventually(mounted, "the guest has mounted it since")

    async def sees(self, uuid: str, *volumes: tuple[str, int, str], boots: int = 1) -> None:
        """Wait until a guest that has booted so often says that it has these volumes, and no others."""
        wanted = sorted(f"VOLUME {volume[:SERIAL]} {gib * GIB // 512} {words}" for volume, gib, words in volumes)

        async def so() -> bool:
            said = (await self.console(uuid)).replace("\r", "")
            looks = said.rpartition(f"boots={boots}")[2].split("LOOKED\n")[:-1]
            return bool(looks) and sorted(re.findall(r"VOLUME \S+ \d+ \S+", looks[-1])) == wanted

        await eventually(so, f"the guest sees {wanted}")


def brought(volume: str, **keys: Any) -> dict[str, Any]:
    return {"source_type": "volume", "uuid": volume, "destination_type": "volume", "boot_index": None, **keys}


@asynccontextmanager
async def guests_of(root: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GuestsWithVolumes]:
    volumes = MemoryVolumes()
    monkeypatch.setattr("skep.processes.own_services.NoVolumes", lambda: volumes)
    async with serving_cloud(with_qemu(root), cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        guests = GuestsWithVolumes(cloud, session)
        guests.files = VolumeFiles(volumes)
        yield guests


async def test_what_a_guest_wrote_is_there_for_another_that_boots_from_a_volume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with guests_of(tmp_path, monkeypatch) as guests:
        files = guests.files
        kept, other = files.new(system=True), files.new(qos_specs={"total_iops_sec": "5000"}, discard=True)
        image = await guests.upload(tiny_image().read_bytes())
        local = {"source_type": "image", "uuid": image, "destination_type": "local", "boot_index": 0}
        one = await guests.with_disks("one", local, brought(kept))
        await guests.sees(one, (kept, 1, "one"))
        await guests.attach(one, other)
        await guests.sees(one, (kept, 1, "one"), (other, 1, "none"))
        files.grow(other)
        event = {"name": "volume-extended", "server_uuid": one, "tag": other}
        answer = await guests.session.ask("POST", "/os-server-external-events", {"events": [event]}, version=NEWEST)
        assert answer.status_code == 200, answer.text
        await guests.sees(one, (kept, 1, "one"), (other, 2, "none"))
        await guests.detach(one, other)
        await guests.sees(one, (kept, 1, "one"))
        await guests.goes_on_elsewhere(one, kept)
        await guests.detach(one, kept)
        await guests.sees(one)
        assert (await guests.session.ask("DELETE", f"/servers/{one}")).status_code == 204

        root = files.new(image=tiny_image())
        two = await guests.with_disks("two", brought(root, boot_index=0), brought(kept))
        await guests.sees(two, (root, 1, "none"), (kept, 1, "one"))
        await guests.act(two, {"reboot": {"type": "HARD"}})
        await guests.calm(two, "ACTIVE")
        await guests.sees(two, (root, 1, "none"), (kept, 1, "one"), boots=2)
        await guests.delete(two)
        await files.are_free(root, kept)
        for volume in (root, kept, other):
            files.path(volume).unlink()
