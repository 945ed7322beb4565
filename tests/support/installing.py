"""Packages of others as an installer leaves them: what entry points are found by."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def install(site: Path, name: str, entry_points: Mapping[str, Mapping[str, str]]) -> None:
    """Write what an installer writes of a package's entry points, by group; the code is the caller's."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [
        line
        for group, entries in entry_points.items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in entries.items()))
    ]
    info.joinpath("entry_points.txt").write_text("\n".join(lines))
