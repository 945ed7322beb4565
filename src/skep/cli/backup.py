"""`skep db backup`, `skep db restore` and `skep db recover`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from skep.cli.config import config_option
from skep.cli.databases import loaded, locations, state_directory
from skep.cli.failures import CommandRefused
from skep.cli.output import Format, format_option, print_rows, print_said, progress
from skep.cli.tables import Table

STOP_FIRST = (
    "stop it first: Ctrl-C where `skep up` runs, or `systemctl stop` of each service on this machine (`skep-api`, "
    "`skep-metadata`, `skep-super-conductor`, `skep-scheduler`, `skep-cell-conductor@CELL`, `skep-compute`)"
)
TABLE = Table({"name": "Database", "revision": "Revision", "file": "File"})


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@config_option
@format_option
def backup(directory: Path, config_file: Path | None, form: Format) -> None:
    """Copy all databases and the keys into a new DIRECTORY, also while the cloud runs.

    Each database is copied as it is at one moment, cells before the API's; one that is missing fails it. The PostgreSQL
    that `skep up --processes` starts is started for it where its cloud does not run. Images and hosts' directories are
    not in it.

    \b
    Example: skep db backup /srv/backups/skep-monday
    """
    from skep.domain.clock import Clock
    from skep.processes.backups import back_up
    from skep.processes.supervisor.stopped import answering

    config = loaded(config_file)
    state = state_directory(config)
    with progress("Copying databases"), answering(config, state) as (current, renewed):
        there, known = locations(current)
        there = {name: renewed(name, location) for name, location in there.items()}
        taken = back_up(there, state, directory, Clock().now(), known)
    print_rows([{"name": one.name, "revision": one.revision, "file": one.file} for one in taken.databases], TABLE, form)


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--only", multiple=True, metavar="NAME", help="Only this database: api, cell0, or a cell's. Repeatable.")
@click.option("--yes", is_flag=True, help="Replace the present databases.")
@config_option
@format_option
def restore(directory: Path, only: tuple[str, ...], yes: bool, config_file: Path | None, form: Format) -> None:
    """Replace the present databases by those of a backup; refused while a cloud runs.

    They are brought to this release's schema. The PostgreSQL that `skep up --processes` starts is started for it, and
    stopped again. Keys that were dropped since the backup was made are taken again, behind those that are there; it
    says which. After the start of the cloud hosts are asked what they have (`skep recovery list`); what stays in doubt
    is listed by `skep doctor --audit`.

    \b
    Example: skep db restore /srv/backups/skep-monday --only cell2 --yes
    """
    from skep.domain.clock import Clock
    from skep.processes.backups import read_manifest
    from skep.processes.backups import restore as put_back
    from skep.processes.supervisor.stopped import held

    names = only or tuple(one.name for one in read_manifest(directory).databases)
    if not yes:
        raise CommandRefused(f"the restore replaces the databases {', '.join(names)}; add --yes")
    config = loaded(config_file)
    state = state_directory(config)
    now = Clock().now()
    back: dict[str, tuple[str, ...]] = {}
    with _stopped(), progress("Restoring databases"), held(config, state) as (current, renewed):
        # The API database says where cells are, so it comes first.
        for part in (("api",) if "api" in names else (), tuple(name for name in names if name != "api")):
            known, _ = locations(current)
            there = {name: renewed(name, known[name]) for name in part if name in known}
            back |= put_back(there, state, directory, part, now)
    dropped = "".join(
        f"keys/{file} has dropped keys again, for the backup may need them: {', '.join(named)}.\n"
        for file, named in back.items()
    )
    said = (
        f'{dropped}Restored: {", ".join(names)}. Next: start, and go on with the checklist "A backup must be restored" '
        "in docs/operations.md."
    )
    print_said(said, {"restored": names, "keys_taken_again": back}, form)


@click.command()
@click.option("--only", multiple=True, metavar="NAME", help="Only this database: api, cell0, or a cell's. Repeatable.")
@click.option("--yes", is_flag=True, help="Ask all hosts for their guests.")
@config_option
@format_option
def recover(only: tuple[str, ...], yes: bool, config_file: Path | None, form: Format) -> None:
    """Mark databases as having lost their last writes; refused while a cloud runs.

    For a server that lost its last seconds in a crash, a replica that was promoted, or files that were put back by
    hand, where all processes ended and hosts may be off: nothing that is left can notice it then. After the start every
    host is asked what it has, as after `skep db restore`, and what may be on a silent one waits.

    \b
    Example: skep db recover --only cell2 --yes
    """
    from skep.database.opening import revision_of
    from skep.domain.clock import Clock
    from skep.processes.backups import begin_to_recover
    from skep.processes.supervisor.stopped import held

    config = loaded(config_file)
    state = state_directory(config)
    with _stopped(), held(config, state) as (current, renewed):
        there = {name: renewed(name, location) for name, location in locations(current)[0].items()}
        if unknown := [name for name in only if name not in there or revision_of(there[name]) is None]:
            raise CommandRefused(
                f"--only: there is no database {', '.join(unknown)}; expected some of {', '.join(there)}"
            )
        names = only or tuple(name for name, location in there.items() if revision_of(location) is not None)
        if not yes:
            raise CommandRefused(
                f"after the start all hosts are asked for their guests, for {', '.join(names)}; add --yes"
            )
        for name in names:
            begin_to_recover(name, there[name], "skep db recover", Clock().now())
    text = f"{', '.join(names)} will recover. Next: start, then `skep recovery list`."
    print_said(text, {"recovering": names}, form)


@contextmanager
def _stopped() -> Iterator[None]:
    """Say how a cloud is stopped where a block finds that it runs."""
    from skep.processes.directory import InUse

    try:
        yield
    except InUse as error:
        raise CommandRefused(f"{error}; {STOP_FIRST}") from None
