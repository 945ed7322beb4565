"""How a command ends that does not end well: one line on standard error, and a status."""

from __future__ import annotations

from typing import IO, Any

import click

NEW_PASSWORD = "stop the cloud and run `skep user set-password admin`"  # noqa: S105 - it is advice
"""What helps where no password is known."""


class Failed(click.ClickException):
    """It was tried and did not work, or a check found something wrong: status 1."""

    exit_code = 1

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the reason, each line of it behind the program's name."""
        for line in self.message.splitlines():
            click.echo(f"skep: {line}", err=True, file=file)


class CommandRefused(Failed):
    """What was asked cannot work: a wrong argument, configuration or role. Status 2."""

    exit_code = 2
