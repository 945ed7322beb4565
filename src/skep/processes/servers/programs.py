"""Where the programs of other packages are, and who may run them."""

from __future__ import annotations

import shutil
from pathlib import Path

POSTGRESQL = Path("/usr/lib/postgresql")
"""Debian keeps the server's programs apart from PATH, one folder for each major version."""


def find_program(name: str) -> Path | None:
    """Return where a program is: on PATH, in `sbin`, or among PostgreSQL's (the newest); None when it is absent."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/local/sbin")
    if found is not None:
        return Path(found)
    versions = sorted(POSTGRESQL.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    return versions[-1] if versions else None
