"""`skep config`: the configuration as it is in force, and its documentation."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from skep.cli.output import Format, format_option, print_rows
from skep.cli.tables import Table

TABLE = Table({"key": "Key", "value": "Value", "source": "Comes from"})

config_option = click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="TOML file to read; default: SKEP_CONFIG, or none.",
)


@click.group()
def config() -> None:
    """Show the configuration and the source of each value.

    \b
    Example: skep config show
    """


@config.command()
@config_option
@click.option("--changed", is_flag=True, help="Only keys whose value is not the default.")
@format_option
def show(config_file: Path | None, changed: bool, form: Format) -> None:
    """Print every key, its value and the source of the value; secrets are hidden.

    \b
    Example: SKEP_API__PORT=9774 skep config show --changed
    """
    from skep.config import load, settings

    loaded = load(config_file, os.environ)
    rows = [
        {"key": one.key, "value": one.value, "source": str(one.source), "description": one.description}
        for one in settings(loaded.config, loaded.sources)
        if not changed or one.source.kind != "default"
    ]
    if form == "table":
        rows = [{**row, "value": msgspec.json.encode(row["value"]).decode()} for row in rows]
    print_rows(rows, TABLE, form)


@config.command()
def docs() -> None:
    """Print the documentation of every key as Markdown; it is docs/configuration.md.

    \b
    Example: skep config docs > docs/configuration.md
    """
    from skep.config.documentation import render

    click.echo(render(), nl=False)
