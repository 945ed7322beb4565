"""Whatever servers and images come to a host and go: what was promised of its disk is there to be written."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.bases import BasesKept, ImageBases
from skep.compute.drivers.libvirt.disk_room import DiskRoom, RoomSettings
from skep.domain.images import Image
from tests.support.samples import examples

UNIT = 4096
"""Bytes: whole blocks of any file system."""
TOTAL = 60 * UNIT
IMAGES = (3, 7, 12)
"""How large they are."""


class Usage(NamedTuple):
    """How full the disk is."""

    total: int
    free: int


class Server(NamedTuple):
    """What one was promised."""

    size: int
    image: int


class DiskOfHost(RuleBasedStateMachine):
    """A host whose disk is small, and whose ledger counts by what the host told last."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.guests, self.fetched = self.root / "guests", self.root / "fetched"
        for path in (self.guests, self.root / "bases", self.fetched):
            path.mkdir()
        self.servers: dict[int, Server] = {}
        self.made = 0
        self.reserved = 0

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    @initialize(reserved=st.integers(0, 4), seconds=st.sampled_from([0.0, 3600.0]))
    def begin(self, reserved: int, seconds: float) -> None:
        self.reserved, self.kept = reserved, BasesKept(seconds=seconds)
        self.restart()
        self.report()

    def usage(self, _path: Path) -> Usage:
        found = {about.st_ino: about.st_blocks * 512 for about in map(Path.stat, _files(self.root))}
        return Usage(TOTAL, TOTAL - sum(found.values()))

    @contextmanager
    def small_disk(self) -> Iterator[None]:
        """Have the cache see the disk of the host as it is here."""
        before = shutil.disk_usage
        shutil.disk_usage = self.usage  # type: ignore[assignment]
        try:
            yield
        finally:
            shutil.disk_usage = before

    @rule()
    def restart(self) -> None:
        """Begin an agent that remembers nothing."""
        settings = RoomSettings(reserved=self.reserved * UNIT, fetched=self.fetched)
        self.room = DiskRoom(self.guests, settings, overlay="disk", whole=("disk.raw",), usage=self.usage)
        self.bases = ImageBases(self.root / "bases", self.kept, _copy, self.room.owed)

    @rule()
    def report(self) -> None:
        """Tell what may be promised, which the ledger counts by until the next report."""
        self.capacity = (TOTAL - self.room.use().images) // UNIT - self.reserved

    @rule(image=st.integers(0, len(IMAGES) - 1))
    def fetch(self, image: int) -> None:
        """Fetch an image, where there is room for it: the agent leaves free what is owed to guests."""
        size = IMAGES[image] * UNIT
        if not (self.fetched / str(image)).exists() and self.usage(self.root).free - self.room.owed() >= size:
            (self.fetched / str(image)).write_bytes(bytes([image + 1]) * size)

    @rule(image=st.integers(0, len(IMAGES) - 1))
    def forget(self, image: int) -> None:
        """Remove the file of an image that the agent had fetched."""
        (self.fetched / str(image)).unlink(missing_ok=True)

    @rule(size=st.integers(1, 20), image=st.integers(0, len(IMAGES) - 1), fills=st.booleans())
    def build(self, size: int, image: int, fills: bool) -> None:
        """Make a server that the ledger takes, if the host does; one that `fills` it has all that is left there."""
        file = self.fetched / str(image)
        left = self.capacity - sum(one.size for one in self.servers.values())
        if fills:
            size = left
        if not 0 < size <= left or not file.exists():
            return
        self.made += 1
        place = self.place(self.made)
        place.mkdir()
        try:
            with self.small_disk():
                self.bases.link(
                    Image(id=str(image)),
                    file,
                    place / "base.raw",
                    lambda more: self.room.take(place, size * UNIT, more),
                )
        except DriverError as error:
            if error.error != "NoSpaceLeft":
                raise
            shutil.rmtree(place)
            return
        finally:
            self.room.has_image(place)
        with (place / "disk.raw").open("wb") as disk:
            disk.truncate(size * UNIT)
        self.servers[self.made] = Server(size, image)
        assert self.usage(self.root).free >= self.room.use().owed

    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        """Have a guest write anywhere in its disk."""
        if self.servers:
            number = data.draw(st.sampled_from(sorted(self.servers)))
            at = data.draw(st.integers(0, self.servers[number].size - 1))
            with (self.place(number) / "disk.raw").open("r+b") as disk:
                disk.seek(at * UNIT)
                disk.write(b"x" * UNIT)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        """Delete a server."""
        if self.servers:
            number = data.draw(st.sampled_from(sorted(self.servers)))
            del self.servers[number]
            shutil.rmtree(self.place(number))
            self.room.forget(self.place(number))
            with self.small_disk():
                self.bases.prune()

    @rule()
    def look(self) -> None:
        """Prune the cache, as the agent does now and then; then what was promised is free."""
        with self.small_disk():
            self.bases.prune()
        assert self.usage(self.root).free >= self.room.use().owed

    @invariant()
    def images_are_counted_to_the_byte(self) -> None:
        if self.made or self.servers:
            used = {one.image for one in self.servers.values()}
            fetched = sum(path.stat().st_blocks * 512 for path in self.fetched.iterdir())
            assert self.room.use().images == sum(IMAGES[one] for one in used) * UNIT + fetched

    @invariant()
    def nothing_is_promised_twice(self) -> None:
        use = self.room.use() if self.servers else None
        if use is not None:
            assert use.promised == sum(one.size for one in self.servers.values()) * UNIT
            assert use.promised + use.images <= TOTAL

    def place(self, number: int) -> Path:
        return self.guests / f"server{number}_1"


def _files(root: Path) -> list[Path]:
    return [Path(directory) / name for directory, _, names in os.walk(root) for name in names]


def _copy(old: Path, new: Path) -> None:
    shutil.copyfile(old, new)


TestDiskOfHost = DiskOfHost.TestCase
TestDiskOfHost.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
