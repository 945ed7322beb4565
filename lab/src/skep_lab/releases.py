"""Releases before these sources: `releases.toml` says which, the git history has their trees; upgrades start there.

    for release in upgraded_from():
        program = installed(release)

A release is unpacked and installed once for each clone, with what its own lock names, into `.skep-tools/releases`.
"""

from __future__ import annotations

import datetime
import fcntl
import os
import subprocess
from pathlib import Path

import msgspec

SOURCES = Path(__file__).parents[3]
INSTALLED = SOURCES / ".skep-tools" / "releases"
FIRST_ROLLING = "0.5.0"
"""The oldest release from which a running cloud can be upgraded to this code, process by process."""
_DONE = ".installed"


class Release(msgspec.Struct, frozen=True):
    """One release."""

    version: str
    date: datetime.date
    commit: str
    """Its tree is the release."""


class _File(msgspec.Struct, frozen=True):
    releases: tuple[Release, ...]


def releases() -> tuple[Release, ...]:
    """Return all releases, oldest first."""
    return msgspec.toml.decode((SOURCES / "releases.toml").read_bytes(), type=_File).releases


def rolling() -> tuple[Release, ...]:
    """Return the releases from which a running cloud can be upgraded, oldest first."""
    versions = [release.version for release in releases()]
    return releases()[versions.index(FIRST_ROLLING) :]


def upgraded_from() -> tuple[Release, ...]:
    """Return the releases from which rolling upgrades are tried, each once: the first that can, and the last."""
    head = _git("rev-parse", "HEAD").strip().decode()
    before = [release for release in rolling() if release.commit != head]
    return (*before[:1], *before[1:][-1:])


def released(version: str) -> Release:
    """Return the release of a version. Raises KeyError."""
    for release in releases():
        if release.version == version:
            return release
    raise KeyError(version)


def why_not(release: Release) -> str:
    """Say why a release cannot be tried whose commit is not there."""
    return (
        f"release {release.version} cannot be tried: the history of these sources lacks its commit {release.commit} "
        "(`git fetch --unshallow` gets it where the clone is shallow; an archive of the sources has no history)"
    )


def is_in_history(release: Release) -> bool:
    """Whether the git history has the commit of a release."""
    return bool(_git("rev-parse", "--quiet", "--verify", f"{release.commit}^{{commit}}"))


def file_of(release: Release, path: str) -> str:
    """Return a file of a release; empty where the history lacks it."""
    return _git("show", f"{release.commit}:{path}").decode()


def installed(release: Release) -> Path | None:
    """Return the interpreter that runs a release, installing it at the first call; None without its commit.

    Raises CalledProcessError when it is there and cannot be unpacked or installed.
    """
    there = INSTALLED / f"{release.version}-{release.commit[:12]}"
    interpreter = there / ".venv" / "bin" / "python"
    if (there / _DONE).exists():
        return interpreter
    if not is_in_history(release):
        return None
    there.mkdir(parents=True, exist_ok=True)
    with (INSTALLED / f"{there.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (there / _DONE).exists():
            unpack(release, there)
            subprocess.run(["scripts/bootstrap", "run"], cwd=there, env=_environment(), check=True)
            subprocess.run([interpreter, "-m", "compileall", "-q", "src"], cwd=there, check=True)
            (there / _DONE).touch()
    return interpreter


def unpack(release: Release, into: Path) -> None:
    """Put the tree of a release into a directory. Raises CalledProcessError."""
    archive = subprocess.run(_command("archive", release.commit), capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(into)], input=archive, check=True)


def _environment() -> dict[str, str]:
    """Return what an installation is told: the uv of this clone, if it has one, saves fetching another.

    All is compiled at once: else the many processes of a cloud would each do it, at the same time, in their start.
    """
    ours = sorted((SOURCES / ".skep-tools").glob("uv-*/bin"))
    without = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return {**without, "UV_COMPILE_BYTECODE": "1", "PATH": os.pathsep.join([*map(str, ours), os.environ["PATH"]])}


def _git(*arguments: str) -> bytes:
    """Ask git about these sources; nothing where it is not there or knows nothing of them."""
    try:
        return subprocess.run(_command(*arguments), capture_output=True, check=False).stdout
    except FileNotFoundError:
        return b""


def _command(*arguments: str) -> list[str]:
    return ["git", "-C", str(SOURCES), *arguments]
