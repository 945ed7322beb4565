"""What goes into a server: its password, injected files and metadata, within the project's limits."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec

from skep.domain.errors import Forbidden

PASSWORD_LENGTH = 12
PASSWORD_SYMBOLS = ("23456789", "ABCDEFGHJKLMNPQRSTUVWXYZ", "abcdefghijkmnopqrstuvwxyz")
"""Groups of which each gives at least one character; what looks like another is left out."""


class InjectedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a user wants inside the server; `contents` is base64."""

    path: str
    contents: str


class Secrets(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored encrypted and erased once the server is built."""

    admin_password: str
    files: tuple[InjectedFile, ...] = ()


def generate_password() -> str:
    """Return a random password."""
    everything = "".join(PASSWORD_SYMBOLS)
    characters = [secrets.choice(group) for group in PASSWORD_SYMBOLS]
    characters += [secrets.choice(everything) for _ in range(PASSWORD_LENGTH - len(characters))]
    secrets.SystemRandom().shuffle(characters)
    return "".join(characters)


def password_of(asked: Mapping[str, Any]) -> str:
    """Return the `adminPass` of a body, also an empty one as in Nova, or a random password where there is none."""
    given: str | None = asked.get("adminPass")
    return generate_password() if given is None else given


def injected_files(server: dict[str, Any]) -> tuple[InjectedFile, ...]:
    """Read `personality`. Hosts read base64 strictly: line breaks, and whatever else was passed over, end here."""
    return tuple(
        InjectedFile(path=one["path"], contents=_strict(one.get("contents", "")))
        for one in server.get("personality") or ()
    )


def _strict(text: str) -> str:
    return base64.b64encode(base64.b64decode("".join(text.split()))).decode()


def check_limits(metadata: Mapping[str, str], files: tuple[InjectedFile, ...], limits: Mapping[str, int]) -> None:
    """Raise Forbidden when there is more than the project may have; a limit of -1 is none."""
    check_metadata(metadata, limits["metadata_items"])
    if _over(len(files), limits["injected_files"]):
        raise Forbidden(f"Personality file limit exceeded: at most {limits['injected_files']} files")
    for file in files:
        if _over(len(file.path.encode()), limits["injected_file_path_bytes"]):
            raise Forbidden(f"Personality file path exceeds maximum {limits['injected_file_path_bytes']}")
        if _over(len(base64.b64decode(file.contents)), limits["injected_file_content_bytes"]):
            raise Forbidden(f"Personality file content exceeds maximum {limits['injected_file_content_bytes']}")


def check_metadata(metadata: Mapping[str, str], most: int) -> None:
    """Raise Forbidden when there are too many items."""
    if _over(len(metadata), most):
        raise Forbidden(f"Maximum number of metadata items exceeds {most}")


def _over(amount: int, limit: int) -> bool:
    return 0 <= limit < amount
