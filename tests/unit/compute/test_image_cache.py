"""The images of a host: each fetched once, whole or not at all, and no more kept than is set."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import msgspec
import pytest

from skep.compute.image_cache import PART, SMALL_IMAGE, TRIES, ImageCache
from skep.compute.image_transfers import ByRequest, ByTicket, Taker
from skep.compute.work import Stopping
from skep.domain.builds import BuildFailure
from skep.domain.ids import ProjectId
from skep.domain.images import Image
from skep.neighbours.images.tickets import ImageTicket, TicketedImages
from tests.support.agents import CONTEXT
from tests.support.images import HeldTransfers

ONE = Image(id="11111111-aaaa-4aaa-8aaa-111111111111", size=5, checksum="first")
PLAIN = Image(id=ONE.id, size=5)
TAKER = Taker(CONTEXT)
TWO = Image(id="22222222-aaaa-4aaa-8aaa-222222222222", size=4, checksum="second")


@pytest.fixture
def transfers() -> HeldTransfers:
    return HeldTransfers({ONE.id: b"first", TWO.id: b"next"})


def cache_of(directory: Path, transfers: HeldTransfers, *, kept: int = 100) -> ImageCache:
    return ImageCache(directory / "images", ByRequest(transfers), largest=8, kept=kept, limit=30, pause=0)


async def taken(cache: ImageCache, image: Image) -> Path:
    path = await cache.take(image, TAKER)
    assert isinstance(path, Path), path
    return path


async def refused(cache: ImageCache, image: Image) -> BuildFailure:
    failed = await cache.take(image, TAKER)
    assert isinstance(failed, BuildFailure), failed
    return failed


async def test_all_who_want_an_image_at_once_get_one_transfer(tmp_path: Path, transfers: HeldTransfers) -> None:
    cache = cache_of(tmp_path, transfers)
    paths = await asyncio.gather(*(taken(cache, ONE) for _ in range(5)))
    assert {path.read_bytes() for path in paths} == {b"first"}
    assert transfers.asked == [(ONE.id, CONTEXT)]


async def test_a_project_that_is_refused_speaks_for_no_other(tmp_path: Path, transfers: HeldTransfers) -> None:
    """Of all builds that wait for one transfer, those of other projects ask by themselves, and share again."""
    cache = cache_of(tmp_path, transfers)
    transfers.goes_on.clear()
    transfers.refused = {CONTEXT.project_id}
    other = msgspec.structs.replace(CONTEXT, project_id=ProjectId("other"))
    first = asyncio.create_task(cache.take(ONE, TAKER))
    await transfers.begun.wait()
    others = [asyncio.create_task(cache.take(ONE, Taker(context))) for context in (CONTEXT, other, other)]
    await asyncio.sleep(0)
    transfers.goes_on.set()
    results = await asyncio.gather(first, *others)
    assert [one.error for one in results[:2] if isinstance(one, BuildFailure)] == ["ImageUnacceptable"] * 2
    assert [one.read_bytes() for one in results[2:] if isinstance(one, Path)] == [b"first"] * 2
    assert transfers.asked == [(ONE.id, one) for one in (CONTEXT, CONTEXT, other)]


async def test_an_agent_that_stops_stops_no_other(tmp_path: Path) -> None:
    """Agents of one process wait for one transfer: where that of the first stops, the next one asks itself."""
    asked, stops = asyncio.Event(), asyncio.Event()

    async def of_the_first() -> ImageTicket:
        asked.set()
        await stops.wait()
        raise Stopping

    async def of_the_second() -> ImageTicket:
        return ImageTicket(url="http://images.example", ticket="of this transfer")

    answers = httpx.MockTransport(lambda _: httpx.Response(200, content=iter_bytes()))
    async with httpx.AsyncClient(transport=answers) as client:
        transfers = ByTicket(TicketedImages(client, timeout=10))
        cache = ImageCache(tmp_path / "images", transfers, largest=8, kept=100, limit=30, pause=0)
        first = asyncio.create_task(cache.take(PLAIN, Taker(CONTEXT, of_the_first)))
        await asked.wait()
        second = asyncio.create_task(cache.take(PLAIN, Taker(CONTEXT, of_the_second)))
        await asyncio.sleep(0)
        stops.set()
        with pytest.raises(Stopping):
            await first
        path = await second
        assert isinstance(path, Path)
        assert path.read_bytes() == b"first"


async def iter_bytes() -> AsyncIterator[bytes]:
    """Give the bytes of `PLAIN`."""
    yield b"first"


async def test_another_run_of_the_process_finds_the_file(tmp_path: Path, transfers: HeldTransfers) -> None:
    await taken(cache_of(tmp_path, transfers), ONE)
    transfers.held.clear()
    assert (await taken(cache_of(tmp_path, transfers), ONE)).read_bytes() == b"first"


async def test_other_bytes_under_the_same_id_are_fetched(tmp_path: Path, transfers: HeldTransfers) -> None:
    cache = cache_of(tmp_path, transfers)
    await taken(cache, ONE)
    transfers.held[ONE.id] = b"later"
    assert (await taken(cache, Image(id=ONE.id, size=5, checksum="other"))).read_bytes() == b"later"


async def test_what_breaks_off_is_fetched_again_and_never_seen(tmp_path: Path, transfers: HeldTransfers) -> None:
    cache = cache_of(tmp_path, transfers)
    transfers.breaks = TRIES
    assert (await refused(cache, PLAIN)).error == "ImageUnavailable"
    assert list((tmp_path / "images").iterdir()) == []
    transfers.breaks = TRIES - 1
    assert (await taken(cache, PLAIN)).read_bytes() == b"first"


async def test_an_image_of_another_size_than_was_requested_is_refused(tmp_path: Path, transfers: HeldTransfers) -> None:
    cache = cache_of(tmp_path, transfers)
    failed = await refused(cache, Image(id=ONE.id, size=6))
    assert failed.error == "ImageUnavailable"
    assert "it had 6 bytes" in failed.message


@pytest.mark.parametrize(
    ("image", "error"),
    [
        (Image(id="33333333-aaaa-4aaa-8aaa-333333333333"), "ImageUnacceptable"),
        (Image(id="44444444-aaaa-4aaa-8aaa-444444444444"), "NoSpaceLeft"),
    ],
)
async def test_an_image_that_is_gone_or_too_large_is_refused_at_once(
    tmp_path: Path, transfers: HeldTransfers, image: Image, error: str
) -> None:
    transfers.held["44444444-aaaa-4aaa-8aaa-444444444444"] = b"too large"
    assert (await refused(cache_of(tmp_path, transfers), image)).error == error
    assert len(transfers.asked) == 1


async def test_an_image_that_would_fill_the_disk_is_not_asked_for(tmp_path: Path, transfers: HeldTransfers) -> None:
    failed = await refused(cache_of(tmp_path, transfers), Image(id=ONE.id, size=1 << 60))
    assert failed.error == "StorageUnavailable"
    assert "no room for" in failed.message
    assert transfers.asked == []


async def test_a_transfer_that_takes_too_long_ends(tmp_path: Path, transfers: HeldTransfers) -> None:
    cache = ImageCache(tmp_path / "images", ByRequest(transfers), largest=8, kept=8, limit=0.01, pause=0)
    transfers.goes_on.clear()
    assert (await refused(cache, PLAIN)).error == "ImageUnavailable"
    # The limit may pass before the directory is made, which nothing interrupts.
    await cache.close()
    assert list((tmp_path / "images").iterdir()) == []


def open_below(directory: Path) -> list[Path]:
    """Return the files below a directory that this process has open."""
    found: list[Path] = []
    for opened in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(opened.readlink())
    return [path for path in found if path.is_relative_to(directory)]


async def test_a_transfer_that_ends_while_its_file_is_made_leaves_none(
    tmp_path: Path, transfers: HeldTransfers, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on, made = threading.Event(), threading.Event(), threading.Event()
    plain = os.open

    def slow(path: str | Path, flags: int, mode: int = 0o777) -> int:
        if not str(path).endswith(PART):
            return plain(path, flags, mode)
        begun.set()
        goes_on.wait(20)
        try:
            return plain(path, flags, mode)
        finally:
            made.set()

    monkeypatch.setattr(os, "open", slow)
    cache = cache_of(tmp_path, transfers)
    build = asyncio.create_task(taken(cache, ONE))
    assert await asyncio.to_thread(begun.wait, 20)
    build.cancel()
    await asyncio.wait([build])
    goes_on.set()
    await cache.close()
    assert await asyncio.to_thread(made.wait, 20)
    assert list((tmp_path / "images").iterdir()) == []
    assert open_below(tmp_path) == []
    assert transfers.asked == []


async def test_a_transfer_goes_on_while_one_build_waits_for_it_and_ends_after_the_last(
    tmp_path: Path, transfers: HeldTransfers
) -> None:
    cache = cache_of(tmp_path, transfers)
    transfers.goes_on.clear()
    first, second = (asyncio.create_task(taken(cache, ONE)) for _ in range(2))
    await transfers.begun.wait()
    first.cancel()
    await asyncio.wait([first])
    transfers.goes_on.set()
    assert (await second).read_bytes() == b"first"

    transfers.goes_on.clear()
    transfers.begun.clear()
    transfers.ended.clear()
    last = asyncio.create_task(taken(cache, msgspec.structs.replace(TWO, checksum=None)))
    await transfers.begun.wait()
    last.cancel()
    await asyncio.wait([last])
    await transfers.ended.wait()
    await cache.close()
    assert [path.read_bytes() for path in (tmp_path / "images").iterdir()] == [b"first"]


async def test_what_a_process_left_long_ago_is_removed(tmp_path: Path, transfers: HeldTransfers) -> None:
    (tmp_path / "images").mkdir()
    left = tmp_path / "images" / f"some.1{PART}"
    left.write_bytes(b"fir")
    os.utime(left, (1, 1))
    await taken(cache_of(tmp_path, transfers), ONE)
    assert [path.read_bytes() for path in (tmp_path / "images").iterdir()] == [b"first"]


HASHED = msgspec.structs.replace(ONE, checksum=hashlib.md5(b"first").hexdigest())


async def test_a_transfer_that_was_cut_goes_on_where_it_was(tmp_path: Path, transfers: HeldTransfers) -> None:
    transfers.breaks = 2
    path = await taken(cache_of(tmp_path, transfers), HASHED)
    assert transfers.held_by == [b"fi", b"firs"]
    assert path.read_bytes() == b"first"
    assert path.stat().st_mode & 0o777 == 0o400
    assert list(path.parent.iterdir()) == [path]


async def test_it_goes_on_in_the_next_process_too(tmp_path: Path, transfers: HeldTransfers) -> None:
    transfers.goes_on.clear()
    cache = cache_of(tmp_path, transfers)
    asked = asyncio.create_task(cache.take(HASHED, TAKER))
    await transfers.stopped.get()
    asked.cancel()
    await cache.close()
    await asyncio.wait([asked])
    transfers.goes_on.set()
    again = cache_of(tmp_path, transfers)
    assert (await taken(again, HASHED)).read_bytes() == b"first"
    assert transfers.held_by == [b"fi"]


async def test_an_image_without_a_hash_begins_anew(tmp_path: Path, transfers: HeldTransfers) -> None:
    """Nothing would tell at its end that the parts are of one image."""
    transfers.breaks = 1
    assert (await taken(cache_of(tmp_path, transfers), PLAIN)).read_bytes() == b"first"
    assert transfers.held_by == []


async def test_what_was_cut_and_is_not_gone_on_with_makes_room(tmp_path: Path, transfers: HeldTransfers) -> None:
    transfers.breaks = TRIES
    cache = cache_of(tmp_path, transfers, kept=0)
    await refused(cache, HASHED)
    [left] = (tmp_path / "images").iterdir()
    assert left.name.endswith(PART)
    await taken(cache, TWO)
    assert not left.exists()


async def test_what_no_guest_is_linked_to_goes_the_longest_unused_first(
    tmp_path: Path, transfers: HeldTransfers
) -> None:
    three = Image(id="33333333-aaaa-4aaa-8aaa-333333333333", size=3)
    transfers.held[three.id] = b"new"
    cache = cache_of(tmp_path, transfers, kept=0)
    one = await taken(cache, ONE)
    os.link(one, tmp_path / "disk")
    cache.release(ONE)
    two = await taken(cache, TWO)
    await taken(cache, three)
    assert one.exists(), "a guest is linked to it"
    assert two.exists(), "a build has it"
    cache.release(TWO)
    cache.release(three)
    (tmp_path / "disk").unlink()
    os.utime(two, (1, 1))
    fourth = Image(id="44444444-aaaa-4aaa-8aaa-444444444444", size=1)
    transfers.held[fourth.id] = b"4"
    cache = cache_of(tmp_path, transfers, kept=8)
    await taken(cache, fourth)
    assert sorted(path.read_bytes() for path in (tmp_path / "images").iterdir()) == [b"4", b"first", b"new"]


LARGE = [Image(id=f"{number}5555555-aaaa-4aaa-8aaa-555555555555", size=SMALL_IMAGE) for number in range(3)]


@dataclass
class Disk:
    """A disk of a size, with the files of one directory."""

    total: int
    directory: Path

    @property
    def free(self) -> int:
        return self.total - sum(path.stat().st_size for path in self.directory.iterdir())


def cache_on_disk(directory: Path, transfers: HeldTransfers, total: int) -> ImageCache:
    """Return a cache that keeps all it can on a disk of `total` bytes; large images come in two halves."""
    transfers.held.update({image.id: bytes(image.size) for image in LARGE})
    transfers.piece = SMALL_IMAGE // 2
    disk = Disk(total, directory / "images")
    return ImageCache(
        directory / "images",
        ByRequest(transfers),
        largest=1 << 30,
        kept=1 << 40,
        limit=30,
        pause=0,
        disk=lambda _: disk,
    )


async def test_unused_images_make_room_for_a_new_one_the_longest_unused_first(
    tmp_path: Path, transfers: HeldTransfers
) -> None:
    cache = cache_on_disk(tmp_path, transfers, SMALL_IMAGE * 2 + 100)
    paths = [await taken(cache, image) for image in LARGE[:2]]
    assert (await refused(cache, LARGE[2])).error == "StorageUnavailable"
    assert all(path.exists() for path in paths), "builds have them"
    for image, path in zip(LARGE, paths, strict=False):
        cache.release(image)
        os.utime(path, (2 - LARGE.index(image), 2 - LARGE.index(image)))
    await refused(cache, Image(id=LARGE[2].id, size=SMALL_IMAGE * 3))
    assert all(path.exists() for path in paths), "without all of them it does not fit either"
    third = await taken(cache, LARGE[2])
    assert [path.exists() for path in (*paths, third)] == [True, False, True]


async def test_images_that_come_at_once_do_not_count_the_same_room(tmp_path: Path, transfers: HeldTransfers) -> None:
    cache = cache_on_disk(tmp_path, transfers, SMALL_IMAGE * 3 - 1)
    transfers.goes_on.clear()
    coming = [asyncio.create_task(cache.take(image, TAKER)) for image in LARGE]
    begun = {await transfers.stopped.get(), await transfers.stopped.get()}
    [ended], _ = await asyncio.wait(coming, return_when=asyncio.FIRST_COMPLETED)
    assert isinstance(ended.result(), BuildFailure)
    assert begun == {image.id for image, task in zip(LARGE, coming, strict=True) if task is not ended}
    transfers.goes_on.set()
    assert sorted(type(one).__name__ for one in await asyncio.gather(*coming)) == [
        "BuildFailure",
        "PosixPath",
        "PosixPath",
    ]
    for image, task in zip(LARGE, coming, strict=True):
        if isinstance(task.result(), Path):
            cache.release(image)
    for image in LARGE:
        await taken(cache, image)
        cache.release(image)


async def test_a_slow_first_look_takes_no_file_of_a_transfer(
    tmp_path: Path, transfers: HeldTransfers, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, goes_on = [threading.Event(), threading.Event()], threading.Event()
    order = iter(looks)
    plain = Path.glob

    def slow(self: Path, pattern: str) -> Iterator[Path]:
        event = next(order)
        event.set()
        if event is looks[0]:
            goes_on.wait(20)
        return plain(self, pattern)

    monkeypatch.setattr(Path, "glob", slow)
    cache = cache_of(tmp_path, transfers)
    transfers.goes_on.clear()
    first = asyncio.create_task(taken(cache, ONE))
    await asyncio.to_thread(looks[0].wait, 20)
    first.cancel()
    await asyncio.wait([first])
    second = asyncio.create_task(taken(cache, TWO))
    goes_on.set()
    transfers.goes_on.set()
    assert (await second).read_bytes() == b"next"
    assert not looks[1].is_set()


@pytest.mark.parametrize("error", [FileNotFoundError, PermissionError])
async def test_an_image_that_was_fetched_is_good_whatever_becomes_of_older_ones(
    tmp_path: Path, transfers: HeldTransfers, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    cache = cache_of(tmp_path, transfers, kept=0)
    old = await taken(cache, ONE)
    cache.release(ONE)
    plain = Path.stat

    def failing(self: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if self.name == old.name:
            raise error(self)
        return plain(self, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", failing)
    assert (await taken(cache, TWO)).name.startswith(TWO.id)


@pytest.mark.parametrize("error", [PermissionError, TimeoutError])
async def test_an_image_that_was_fetched_is_good_where_no_older_one_can_be_removed(
    tmp_path: Path, transfers: HeldTransfers, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    def failing(self: Path) -> Iterator[Path]:
        raise error(self)

    monkeypatch.setattr(Path, "iterdir", failing)
    assert (await taken(cache_of(tmp_path, transfers), ONE)).read_bytes() == b"first"
