"""The files of images."""

from __future__ import annotations

import stat
import uuid
from pathlib import Path

import pytest

from skep.standalone.images.files import ImageFiles, file_name


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
