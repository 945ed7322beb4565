"""The configuration of the installation that is here: a cloud of processes tells itself where its databases are."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from skep.cli.failures import CommandRefused

if TYPE_CHECKING:
    from skep.config.loading import LoadedConfig


def load_installed(file: Path | None) -> LoadedConfig:
    """Return the configuration of a file and the environment, and of the cloud of processes in its state directory.

    Such a cloud has written where its databases and servers are (`processes.env`); that is taken unless the file or
    the environment names an API database. Raises ConfigError, and Refused when it cannot be read.
    """
    from skep.config import load

    loaded = load(file, os.environ)
    written = written_by_processes(loaded)
    if written is None:
        return loaded
    return load(file, {**_variables(written), **os.environ})


def written_by_processes(loaded: LoadedConfig) -> Path | None:
    """Return where a cloud of processes in the state directory tells its addresses, if they are not configured."""
    from skep.processes.directory import StateDirectory

    path = StateDirectory(Path(loaded.config.state.directory)).processes_env
    return path if not loaded.config.database.api_url and os.path.lexists(path) else None


def _variables(path: Path) -> dict[str, str]:
    try:
        words = shlex.split(path.read_text(encoding="utf-8"), comments=True)
    except (OSError, ValueError) as error:
        raise CommandRefused(
            f"{path} cannot be read: {error}; it names the databases of the cloud of processes"
        ) from None
    return {name: value for name, sign, value in (word.partition("=") for word in words) if sign}
