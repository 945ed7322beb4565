"""A guest that counts without end: the first sector of its disk writes 4 MiB of memory, then a line, and so on."""

from __future__ import annotations

import re

CODE = bytes.fromhex(
    "fc fa 31c0 8ed8 8ed0 bc007c"  # cld; cli; ds = ss = 0; sp = 7c00
    "0f0116007d 0f20c0 40 0f22c0 bb0800 8ec3 48 0f22c0"  # by the table at 7d00 es reaches all memory
    "6631ed 6645"  # ebp = 0; again: inc ebp
    "66bf00001000 6689e8 66b900001000 6766f3ab"  # 2**20 words of ebp from 2**20 on
    "b90800"  # cx = 8
    "66c1c504 89e8 240f 0430 3c39 7602 0427 e80900 e2eb"  # rol ebp, 4; its lowest digit; put; loop
    "b00a e80200 ebcc"  # put the end of the line; again
    "88c4 bafd03 ec a820 74fb 88e0 baf803 ee c3"  # put: when the serial line is ready, out
)
TABLE = bytes.fromhex("0f00 067d0000" + 8 * "00" + "ffff00000092cf00")
"""Two segments: none, and all memory."""
COUNTS = ((CODE.ljust(256, b"\0") + TABLE).ljust(510, b"\0") + b"\x55\xaa").ljust(1 << 20, b"\0")
"""A disk, raw. Its guest writes 8 hexadecimal digits a line."""


def counted(said: bytes) -> int:
    """Return how far a guest has counted, by what its console shows; 0: it has not begun.

    It never counted anew, left a number out or said one twice.
    """
    found = [int(line, 16) for line in said.split(b"\n")[:-1] if re.fullmatch(rb"[0-9a-f]{8}", line)]
    assert not found or found == list(range(found[0], found[-1] + 1))
    return found[-1] if found else 0
