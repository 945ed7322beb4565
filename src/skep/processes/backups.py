"""Copies of an installation's databases and keys in one directory, and the way back.

SQLite files are copied by SQLite's own backup, PostgreSQL's by `pg_dump`; each copy is of one moment, also while the
cloud runs. Cells are copied before the API database: a server of the time between is then known above and missing
below, which the audit names. The other way round a server that runs would look as if it still had to be built.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from skep.database import schema
from skep.database.api import recovery as api_recovery
from skep.database.cell import recovery as cell_recovery
from skep.database.locations import Location, for_programs, shown
from skep.database.opening import bare_engine, revision_of
from skep.domain.decoding import json_decoder
from skep.domain.errors import Misconfigured
from skep.processes import privacy
from skep.processes.directory import StateDirectory
from skep.processes.servers.programs import find_program
from skep.standalone.key_ring import take_in

MANIFEST = "backup.json"
DUMP = ".dump"
"""How the copy of a database of PostgreSQL's ends."""


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """One database in a backup."""

    name: str
    """`api`, `cell0`, or the cell's."""
    file: str
    revision: str
    """Of its schema."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup holds; written last, so that a broken one has none."""

    taken_at: int
    """Microseconds since the epoch."""
    databases: tuple[Copied, ...]


def back_up(
    locations: Mapping[str, Location], directory: StateDirectory, to: Path, now: int, known: Collection[str]
) -> Manifest:
    """Copy databases and keys into a new directory, for its owner only. Blocks.

    `known` are the names of the cells that the installation has: their databases and the API's must be there. Raises
    Misconfigured when one is not, when the directory is there already, or something cannot be copied; then there is
    no directory.
    """
    _refuse_missing(locations, known)
    try:
        to.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise Misconfigured(f"{to} is there already: name a new directory") from None
    try:
        return _backed_up(locations, directory, to, now)
    except BaseException:
        shutil.rmtree(to)
        raise


def _refuse_missing(locations: Mapping[str, Location], known: Collection[str]) -> None:
    missing = [name for name in ("api", *sorted(known)) if revision_of(locations[name]) is None]
    if "api" in missing:
        raise Misconfigured(
            f"there is nothing to copy: the API database {shown(locations['api'])} is missing or empty; name the "
            "installation by --config, SKEP_DATABASE__API_URL or SKEP_STATE__DIRECTORY"
        )
    if missing:
        each = ", ".join(f"{name} ({shown(locations[name])})" for name in missing)
        raise Misconfigured(f"the backup would be incomplete, these databases are missing: {each}")


def _backed_up(locations: Mapping[str, Location], directory: StateDirectory, to: Path, now: int) -> Manifest:
    copied = tuple(_copies(locations, to))
    if directory.keys.is_dir():
        shutil.copytree(directory.keys, to / "keys")
    manifest = Manifest(taken_at=now, databases=copied)
    (to / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
    privacy.tighten(to)
    return manifest


def read_manifest(backup: Path) -> Manifest:
    """Return what a backup holds. Raises Misconfigured when it is none, or not whole."""
    try:
        return json_decoder(Manifest).decode((backup / MANIFEST).read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise Misconfigured(f"{backup} is not a complete backup: {MANIFEST}: {error}") from None


def restore(
    locations: Mapping[str, Location], directory: StateDirectory, backup: Path, names: Sequence[str], now: int
) -> dict[str, tuple[str, ...]]:
    """Put the named databases of a backup into the place of what is there, and keys that are missing. Blocks.

    Each is brought to this release's schema, and noted to have gone back in time. Return the keys that the backup had
    more, file -> names: they had been dropped, and are taken again.

    Raises Misconfigured when the backup does not hold one, or it cannot be put back: that one is then as it was.
    """
    held = {one.name: one for one in read_manifest(backup).databases}
    for name in names:
        if name not in held or name not in locations:
            where = "the backup" if name not in held else "the configuration, nor does the API database"
            raise Misconfigured(f"{where} does not know a database {name}")
        _refuse_other_kind(held[name], locations[name])
    taken_in: dict[str, tuple[str, ...]] = {}
    if (backup / "keys").is_dir():
        for key in (backup / "keys").iterdir():
            ours = directory.keys / key.name
            if not ours.exists():
                shutil.copy2(key, ours)
            elif ours in (directory.secrets_key, directory.token_keys):
                # What the backup holds may be sealed by a key that was dropped since.
                taken_in[key.name] = take_in(ours, key)
    for name in names:
        _put_back(backup / held[name].file, locations[name])
        begin_to_recover(name, locations[name], "skep db restore", now)
    return {file: names for file, names in taken_in.items() if names}


def _refuse_other_kind(copied: Copied, location: Location) -> None:
    """See that a copy is of the kind of database in whose place it is put. Raises Misconfigured."""
    if copied.file.endswith(DUMP) != isinstance(location, Path):
        return
    if isinstance(location, Path):
        raise Misconfigured(
            f"the copy of {copied.name} is PostgreSQL's, but its place is the file {location}: name its database in "
            "the configuration, or the state directory of its cloud of processes, where `processes.env` names it"
        )
    raise Misconfigured(f"the copy of {copied.name} is a SQLite file, but its place is {shown(location)}")


def _copies(locations: Mapping[str, Location], to: Path) -> Iterator[Copied]:
    for name, location in sorted(locations.items(), key=lambda item: item[0] == "api"):
        revision = revision_of(location)
        if revision is None:
            continue
        if isinstance(location, Path):
            file = to / f"{name}.db"
            _copy_sqlite(location, file)
        else:
            file = to / f"{name}{DUMP}"
            _run("pg_dump", location, "--format=custom", "--no-owner", "--no-privileges", f"--file={file}")
        yield Copied(name=name, file=file.name, revision=revision)


def _copy_sqlite(source: Path, to: Path) -> None:
    try:
        with closing(sqlite3.connect(source)) as reading, closing(sqlite3.connect(to)) as writing:
            reading.backup(writing)
    except sqlite3.Error as error:
        raise Misconfigured(f"{source} cannot be copied: {error}") from error


def _put_back(copy: Path, location: Location) -> None:
    if not isinstance(location, Path):
        wanted = ("--clean", "--if-exists", "--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction")
        _run("pg_restore", location, *wanted, str(copy))
        return
    new = location.with_name(location.name + ".new")
    new.unlink(missing_ok=True)
    location.parent.mkdir(parents=True, exist_ok=True)
    _copy_sqlite(copy, new)
    for left in ("-wal", "-shm"):
        location.with_name(location.name + left).unlink(missing_ok=True)
    new.replace(location)


def begin_to_recover(name: str, location: Location, why: str, now: int) -> None:
    """Note in a database that it went back in time, so that it need not be found out. Blocks.

    It is brought to this release's schema. Raises StorageUnavailable when it cannot be reached.
    """
    kind: schema.Kind = "api" if name == "api" else "cell"
    begin = api_recovery.begin if name == "api" else cell_recovery.begin
    engine = bare_engine(location)
    try:
        schema.upgrade(engine, kind)
        with engine.begin() as connection:
            begin(connection, None, why, now)
    finally:
        engine.dispose()


def _run(program: str, location: str, *arguments: str) -> None:
    """Run one of PostgreSQL's programs on a database. Raises Misconfigured with what it says."""
    found = find_program(program)
    if found is None:
        raise Misconfigured(f"`{program}` is not installed; it comes with PostgreSQL's client programs")
    # Other users of the machine see arguments, so the password is none of them.
    url, password = for_programs(location)
    command = [str(found), f"--dbname={url}", "--no-password", *arguments]
    environment = os.environ | ({} if password is None else {"PGPASSWORD": password})
    ended = subprocess.run(  # noqa: S603 - a program of PostgreSQL's, with our own words
        command, env=environment, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        said = " ".join(ended.stderr.split())
        raise Misconfigured(f"{program} of {shown(location)} failed: {said or ended.returncode}")
