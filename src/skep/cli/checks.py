"""What `skep doctor` looks at on this machine. Each check is a plain function that says how one thing is."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from skep.cli.openstack_client import find_client

if TYPE_CHECKING:
    from skep.config import Config

MINIMUM_PYTHON = (3, 11)
MINIMUM_SQLITE = (3, 35, 0)
"""The first with RETURNING."""
LOW_DISK = 1 << 30
FULL_DISK = 100 << 20

BROKER_SECONDS = 2.0

Verdict = Literal["good", "warning", "bad", "skipped"]


class Check(msgspec.Struct, frozen=True):
    """How one thing is, and what to do about it."""

    name: str
    verdict: Verdict
    message: str


def of_machine() -> Iterator[Check]:
    """Look at what every cloud needs of a machine."""
    yield interpreter(sys.version_info[:3])
    yield sqlite(sqlite3.sqlite_version_info)
    yield client(find_client())


def of_installation(config: Config, *, running: bool) -> Iterator[Check]:
    """Look at the installation whose state is here, which may run or not."""
    from skep.config.whole import with_networks

    directory = Path(config.state.directory)
    yield state_directory(directory)
    yield disk(directory)
    yield stopped(directory) if is_stopped(directory) else databases(config)
    yield secrets(directory)
    if config.notifications.transport_url:
        yield notifications(config)
    config = with_networks(config)
    embedded = [name for name in ("identity", "images", "networks") if getattr(config, name).kind == "embedded"]
    for name in ("api", *embedded):
        port = getattr(config, name).port
        yield port_free(name, config.api.bind_host, port, running=running)


def interpreter(version: tuple[int, int, int]) -> Check:
    """Whether Python is new enough."""
    good = version >= MINIMUM_PYTHON
    wanted = "" if good else f"; {_dotted(MINIMUM_PYTHON)} or newer is needed"
    return Check("python", "good" if good else "bad", _dotted(version) + wanted)


def sqlite(version: tuple[int, int, int]) -> Check:
    """Whether SQLite can return what it wrote."""
    good = version >= MINIMUM_SQLITE
    wanted = "" if good else f"; {_dotted(MINIMUM_SQLITE)} or newer is needed"
    return Check("sqlite", "good" if good else "bad", _dotted(version) + wanted)


def client(program: Path | None) -> Check:
    """Whether the `openstack` client is there; only the first server of `skep up` needs it."""
    if program is None:
        return Check("openstack client", "warning", "not installed: `skep up` builds no first server")
    return Check("openstack client", "good", str(program))


def state_directory(directory: Path) -> Check:
    """Whether the state directory, or the one that it would be made in, can be written."""
    there = directory if directory.exists() else _existing_parent(directory)
    if not there.is_dir():
        return Check("state directory", "bad", f"{there} is no directory")
    if not os.access(there, os.W_OK | os.X_OK):
        return Check("state directory", "bad", f"{there} cannot be written by user {os.getuid()}")
    made = "" if there == directory else " (made at the first start)"
    return Check("state directory", "good", f"{directory}{made}")


def disk(directory: Path) -> Check:
    """Whether there is room. A full disk refuses new servers; it breaks none."""
    free = shutil.disk_usage(_existing_parent(directory)).free
    verdict: Verdict = "good" if free >= LOW_DISK else "warning" if free >= FULL_DISK else "bad"
    return Check("disk", verdict, f"{free >> 20} MiB free for {directory}")


def secrets(directory: Path) -> Check:
    """Whether a rotation has not ended: the old secret is still taken beside the new one."""
    from skep.cli.server_keys import own_servers
    from skep.domain.errors import Misconfigured
    from skep.processes.directory import StateDirectory
    from skep.processes.rotation import Rotation, next_step

    state = StateDirectory(directory)
    rotation = Rotation(state)
    try:
        steps = {secret: next_step(record) for secret, record in rotation.records().items()}
        steps |= {row["secret"]: row["next"] for row in own_servers(state) if row["next"] == "drop"}
    except Misconfigured as error:
        return Check("secrets", "bad", str(error))
    if not steps:
        return Check("secrets", "good", "no rotation is under way")
    named = "; ".join(f"{name}: next `skep keys rotate {name}` ({step})" for name, step in steps.items())
    return Check("secrets", "warning", f"old keys are still accepted beside new ones, {named}")


def is_stopped(directory: Path) -> bool:
    """Tell whether a cloud of processes that has servers of its own is here and does not run: nor do its servers."""
    from skep.processes.directory import StateDirectory

    state = StateDirectory(directory)
    there = state.processes_env.exists() and (state.servers / "passwords.json").exists()
    return there and not is_running(directory)


def stopped(directory: Path) -> Check:
    """Say that databases cannot be looked at while their server does not run, and how it is started."""
    why = f"the cloud of processes in {directory} is stopped, its PostgreSQL too; `skep up --processes` starts it"
    return Check("databases", "skipped", why)


def databases(config: Config) -> Check:
    """Whether all that should be there are, and have this release's schema. Opening them at a start upgrades them."""
    from skep.cli.databases import revisions, see_all_there
    from skep.domain.errors import Misconfigured, StorageUnavailable

    try:
        see_all_there(config)
        found = list(revisions(config))
    except (Misconfigured, StorageUnavailable) as error:
        return Check("databases", "bad", str(error))
    away = [f"{row['database']}: {row['error']}" for row in found if "error" in row]
    if away:
        return Check("databases", "bad", "; ".join(away))
    rows = [row for row in found if row["revision"] is not None]
    behind = [row["database"] for row in rows if not row["fits"]]
    if behind:
        return Check(
            "databases", "warning", f"other schema than this release's: {', '.join(behind)}; `skep db upgrade`"
        )
    return Check("databases", "good", f"{len(rows)} at this release's schema" if rows else "none yet")


def notifications(config: Config) -> Check:
    """Whether the broker of notifications can be used as configured, and one of its hosts takes connections."""
    from skep.domain.errors import Misconfigured
    from skep.processes.notifying import broker_of

    try:
        hosts = broker_of(config.notifications).hosts
    except Misconfigured as error:
        return Check("notifications", "bad", str(error))
    failed = []
    for host, port in hosts:
        try:
            socket.create_connection((host, port), timeout=BROKER_SECONDS).close()
        except OSError as error:
            failed.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return Check("notifications", "good", f"{host}:{port} takes connections")
    return Check("notifications", "warning", f"no broker takes connections, {'; '.join(failed)}")


def port_free(name: str, host: str, port: int, *, running: bool) -> Check:
    """Whether a port can be listened on; not looked at while our own cloud runs, on this port or on another."""
    if running:
        return Check(f"{name} port", "skipped", "the cloud of this state directory runs")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            advice = f"set {name}.port (SKEP_{name.upper()}__PORT) or stop what listens there"
            return Check(f"{name} port", "bad", f"{host}:{port}: {error.strerror}; {advice}")
    return Check(f"{name} port", "good", f"{host}:{port} is free" if port else "any free one")


def is_running(directory: Path) -> bool:
    """Tell whether a process holds the state directory."""
    from skep.processes.directory import is_held

    try:
        return is_held(directory / "lock")
    except OSError:
        return False


def _existing_parent(path: Path) -> Path:
    path = path.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)
