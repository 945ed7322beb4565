"""The screen of a fake guest, as a viewer sees it."""

from __future__ import annotations

import struct

import pytest

from skep.compute.drivers.base import DriverError, Guest
from skep.compute.drivers.fake_screen import HEIGHT, WIDTH, FakeScreenLine, colour_of
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState

ONE = InstanceUuid("11111111-0000-4000-8000-000000000001")
GUEST = Guest(instance=ONE, attempt=1, name="one", resources={}, power_state=PowerState.RUNNING, whole=True)
HELLO = b"RFB 003.008\n\x01\x01"
ASK = struct.pack(">BBHHHH", 3, 0, 0, 0, WIDTH, HEIGHT)
RGB565 = struct.pack(">B3x4B3H3B3x", 0, 16, 16, 1, 1, 31, 63, 31, 11, 5, 0)


async def screen(*said: bytes) -> bytes:
    line = FakeScreenLine(lambda: GUEST)
    for piece in said:
        await line.write(piece)
    return await line.read()


async def test_a_viewer_sees_the_colour_of_the_guest() -> None:
    encodings, key, pointer = struct.pack(">BxHii", 2, 2, 0, 1), b"\4\1\0\0\0\0\0x", b"\5\0\0\0\0\0"
    cut = b"\6\0\0\0" + struct.pack(">I", 3) + b"abc"
    heard = await screen(HELLO, encodings + key + pointer + cut + ASK)
    assert heard.startswith(b"RFB 003.008\n\x01\x01\0\0\0\0" + struct.pack(">HH", WIDTH, HEIGHT))
    red, green, blue = colour_of(ONE)
    assert heard.endswith(bytes((blue, green, red, 0)) * (WIDTH * HEIGHT))
    assert b"\0\0\0\x03one\0\0\0\1" in heard


async def test_pixels_are_as_the_viewer_wants_them() -> None:
    red, green, blue = colour_of(ONE)
    value = (31 * red // 255) << 11 | (63 * green // 255) << 5 | (31 * blue // 255)
    assert (await screen(HELLO, RGB565, ASK)).endswith(value.to_bytes(2, "big") * (WIDTH * HEIGHT))


async def test_it_does_not_matter_how_a_viewer_cuts_what_it_says() -> None:
    said = HELLO + RGB565 + ASK
    assert await screen(*(bytes([byte]) for byte in said)) == await screen(said)


async def test_nothing_changes_on_the_screen() -> None:
    assert await screen(HELLO, b"\3\1" + ASK[2:]) == await screen(HELLO)


@pytest.mark.parametrize("said", [b"\x09", b"\6\0\0\0\xff\xff\xff\xff"])
async def test_what_is_no_message_ends_the_line(said: bytes) -> None:
    with pytest.raises(DriverError):
        await screen(HELLO, said)
