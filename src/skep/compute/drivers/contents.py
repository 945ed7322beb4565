"""What a user wants inside a guest: its password and files. Sealed until the driver gets it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec


class GuestFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file to put into the guest; on the wire and in JSON `contents` is base64."""

    path: str
    contents: bytes


class GuestContents(msgspec.Struct, frozen=True, kw_only=True):
    """The password of the guest's administrator, and the injected files."""

    admin_password: str
    files: tuple[GuestFile, ...] = ()

    def __repr__(self) -> str:
        """Leaves the password and the contents out."""
        return f"GuestContents(files={[file.path for file in self.files]})"


Opener: TypeAlias = Callable[[bytes], GuestContents | None]
"""Opens what is sealed; None where this host has no key for it."""


def keeps_closed(_sealed: bytes) -> GuestContents | None:
    """Open nothing: the host has no key."""
    return None
