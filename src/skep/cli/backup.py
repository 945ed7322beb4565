"""`skep db backup` and `skep db restore`."""

from __future__ import annotations

from pathlib import Path

import click

from skep.cli.config import config_option
from skep.cli.databases import loaded, locations, state_directory
from skep.cli.failures import Refused
from skep.cli.output import Format, format_option, print_rows, progress

COLUMNS = {"name": "Database", "revision": "Revision", "file": "File"}


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@config_option
@format_option
def backup(directory: Path, config_file: Path | None, form: Format) -> None:
    """Copy all databases and the keys into a new DIRECTORY, also while the cloud runs.

    Each database is copied as it is at one moment, cells before the API's. Images and hosts' directories are not in it.

    \b
    Example: skep db backup /srv/backups/skep-monday
    """
    from skep.domain.clock import Clock
    from skep.processes.backups import back_up

    config = loaded(config_file)
    with progress("Copying databases"):
        taken = back_up(locations(config)[0], state_directory(config), directory, Clock().now())
    print_rows(
        [{"name": one.name, "revision": one.revision, "file": one.file} for one in taken.databases], COLUMNS, form
    )


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--only", multiple=True, metavar="NAME", help="Only this database: api, cell0, or a cell's. Repeatable.")
@click.option("--yes", is_flag=True, help="What is there now is replaced.")
@config_option
def restore(directory: Path, only: tuple[str, ...], yes: bool, config_file: Path | None) -> None:
    """Put the databases of a backup into the place of what is there; refused while a cloud runs.

    Afterwards `skep db upgrade`, start, and `skep doctor --audit`.

    \b
    Example: skep db restore /srv/backups/skep-monday --only cell2 --yes
    """
    from skep.processes.backups import read_manifest
    from skep.processes.backups import restore as put_back

    names = only or tuple(one.name for one in read_manifest(directory).databases)
    if not yes:
        raise Refused(f"this replaces what is in {', '.join(names)}; say --yes")
    config = loaded(config_file)
    state = state_directory(config)
    state.open()
    try:
        # The API database says where cells are, so it comes first.
        if "api" in names:
            put_back(locations(config)[0], state, directory, ("api",))
        put_back(locations(config)[0], state, directory, tuple(name for name in names if name != "api"))
    finally:
        state.close()
    click.echo(f"Restored: {', '.join(names)}. Next: `skep db upgrade`, start, `skep doctor --audit`.")
