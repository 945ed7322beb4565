"""A cloud of processes as `skep up --processes` runs it, in a folder of its own, on free ports and without quotas."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from skep.config import load
from skep.processes.supervisor.cloud import SupervisedCloud
from skep.processes.supervisor.plan import ProcessNumbers

SETTINGS = """
[api]
port = 0
[identity]
port = 0
scrypt_cost = 10
[images]
port = 0
[networks]
port = 0
[quota]
instances = -1
cores = -1
ram = -1
"""


@contextmanager
def new_open_folder() -> Iterator[Path]:
    """Make a folder that PostgreSQL's user gets to: pytest closes its own to everybody else."""
    with tempfile.TemporaryDirectory(prefix="skep-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)
        yield folder


@asynccontextmanager
async def supervised_cloud(
    folder: Path, numbers: ProcessNumbers, settings: str, *, hosts: int = 1
) -> AsyncIterator[SupervisedCloud]:
    """Run a cloud of one cell; `settings` (TOML) are added to those that all have. It may be run again."""
    file = folder / "skep.toml"
    file.write_text(SETTINGS + settings)
    config = load(file, {"SKEP_STATE__DIRECTORY": str(folder / "state")}).config
    cloud = SupervisedCloud(config, numbers, cells=1, hosts=hosts, config_file=file)
    await cloud.start()
    try:
        yield cloud
    finally:
        await cloud.stop()
