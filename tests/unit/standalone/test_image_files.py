"""The files of images."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.requests import ClientDisconnect

from skep.contracts.eventually import eventually
from skep.standalone.images.files import ImageFiles, Incoming, file_name
from skep.standalone.images.handlers.files import ImageData


@pytest.mark.parametrize("name", ["../x.1", "x", "", f"{uuid.UUID(int=0)}", f"{uuid.UUID(int=0)}.1/..", "incoming"])
async def test_no_other_name_reaches_the_disk(tmp_path: Path, name: str) -> None:
    files = ImageFiles(tmp_path / "images")
    with pytest.raises(ValueError, match="not the name"):
        await files.open(name)
    with pytest.raises(ValueError, match="not the name"):
        await files.remove(name)


async def test_a_directory_of_the_owner_s_alone(tmp_path: Path) -> None:
    directory = tmp_path / "images"
    ImageFiles(directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


async def test_bytes_appear_when_they_are_kept(tmp_path: Path) -> None:
    files = ImageFiles(tmp_path)
    name = file_name(str(uuid.uuid4()), 1)
    async with files.receive(name, 100) as incoming:
        await incoming.write(b"abc")
        with pytest.raises(FileNotFoundError):
            await files.open(name)
        received = await incoming.keep()
    assert (received.size, received.md5) == (3, "900150983cd24fb0d6963f7d28e17f72")
    with await files.open(name) as file:
        await files.remove(name)
        assert file.read() == b"abc"


async def test_an_upload_that_ends_before_a_thread_makes_its_file_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on, done = threading.Event(), threading.Event(), threading.Event()
    plain = Incoming._guarded

    def late(self: Incoming, work: Callable[[], None]) -> None:
        begun.set()
        goes_on.wait(20)
        plain(self, work)
        done.set()

    monkeypatch.setattr(Incoming, "_guarded", late)
    files = ImageFiles(tmp_path)

    async def upload() -> None:
        async with files.receive(file_name(str(uuid.uuid4()), 1), 100):
            pass

    uploading = asyncio.create_task(upload())
    assert await asyncio.to_thread(begun.wait, 20)
    uploading.cancel()
    await asyncio.wait([uploading])
    goes_on.set()
    assert await asyncio.to_thread(done.wait, 20)
    assert list((tmp_path / "incoming").iterdir()) == []


async def test_an_open_that_is_cancelled_leaves_nothing_open(tmp_path: Path) -> None:
    files, name = ImageFiles(tmp_path), file_name(str(uuid.uuid4()), 1)
    os.mkfifo(tmp_path / name)
    reading = asyncio.create_task(files.open(name))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    # The thread of the reader opens its end all the same, and not before there is this one.
    with await asyncio.to_thread((tmp_path / name).open, "wb", 0) as writer:

        async def is_closed() -> bool:
            try:
                writer.write(b"x")
            except BrokenPipeError:
                return True
            return False

        await eventually(is_closed, "the reader's end is closed")


async def test_a_client_that_goes_away_before_the_first_byte_leaves_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"data")
    file = (tmp_path / "data").open("rb")

    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def send(_message: object) -> None:
        raise OSError

    scope = {"type": "http", "asgi": {"spec_version": "2.4"}}
    with pytest.raises(ClientDisconnect):
        await ImageData(file, {}, 200)(scope, receive, send)
    assert file.closed
