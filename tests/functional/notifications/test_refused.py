"""A broker that cannot be used as configured is refused by every start, which names the setting and no password."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

PASSWORD = "s3cret"
COMMANDS = (
    ("up", "--processes", "--free-ports"),
    ("serve", "all-in-one"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
async def test_every_start_refuses_it(tmp_path: Path, command: tuple[str, ...]) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    environment |= {
        "SKEP_STATE__DIRECTORY": str(tmp_path / "state"),
        "SKEP_NOTIFICATIONS__TRANSPORT_URL": f"rabbit://skep:{PASSWORD}@broker/?sssl=true",
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "skep.cli", *command),
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said = (await process.communicate())[0].decode()
    assert process.returncode not in {0, None}, said
    assert "notifications.transport_url: there is no option `sssl` behind `?`" in said
    assert PASSWORD not in said
