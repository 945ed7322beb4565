"""The sources of the last release: the newest tag before these sources, unpacked from their git history."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCES = Path(__file__).parents[3]
WHY_NOT = "these sources have no tags (`git fetch --tags` gets them), so the last release cannot be tried"


def unpacked(into: Path) -> Path | None:
    """Unpack the last release into a directory and return its `src`, which goes onto PYTHONPATH; None where no tag is.

    Raises CalledProcessError when a tag is there and cannot be unpacked.
    """
    before = ("--merged", "HEAD", "--no-contains", "HEAD")  # a release is tried against the one before it
    tags = _git("tag", "--list", "v*", *before, "--sort=-v:refname").decode().split()
    if not tags:
        return None
    there = into / tags[0]
    there.mkdir(parents=True)
    subprocess.run(["tar", "-x", "-C", str(there)], input=_git("archive", tags[0], "src"), check=True)
    return there / "src"


def _git(*arguments: str) -> bytes:
    """Ask git about these sources; nothing where it is not there or knows nothing of them."""
    try:
        return subprocess.run(["git", "-C", str(SOURCES), *arguments], capture_output=True, check=False).stdout
    except FileNotFoundError:
        return b""
