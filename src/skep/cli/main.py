"""`skep`: the commands, each imported only when it is used, so that help is quick."""

from __future__ import annotations

import faulthandler
import importlib
import sys
from typing import Any

import click
from click.shell_completion import CompletionItem

from skep.cli.failures import CommandRefused, Failed
from skep.domain.errors import Misconfigured, SkepError

COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("skep.cli.up:up", "Start a whole cloud in this process and build a first server."),
    "demo": ("skep.cli.demo:demo", "Build 20 servers in a temporary cloud; show the host of each and why."),
    "serve": ("skep.cli.serve:serve", "Run one role of an installation."),
    "doctor": ("skep.cli.doctor:doctor", "Check configuration, machine and running cloud; --audit compares the data."),
    "config": ("skep.cli.config:config", "Show the configuration and the source of each value."),
    "policy": ("skep.cli.policy:policy", "Show and try the rules of who may do what; compare a policy file."),
    "db": ("skep.cli.db:db", "Bring the databases to this release's schema; give up a cell whose database is lost."),
    "bench": ("skep.cli.bench:bench", "Measure how fast servers are placed and built."),
    "simulate": ("skep.cli.simulate:simulate", "Place a trace without a cloud; replay recorded decisions."),
    "cell": ("skep.cli.cell:cell", "List, show, enable, disable and delete cells."),
    "host": ("skep.cli.host:host", "List, show, enable and disable hosts."),
    "enrol": ("skep.cli.enrol:enrol", "Make this machine a host of a cell, by a token of that cell."),
    "nats": ("skep.cli.nats:nats", "Configure NATS servers with an account for each cell."),
    "namespace": ("skep.cli.namespace:namespace", "Manage namespaces of other services' host states, and credentials."),
    "keys": ("skep.cli.keys:keys", "Replace secrets while everything runs."),
    "user": ("skep.cli.user:user", "Set the password of a user of the embedded identity service."),
    "request": ("skep.cli.request:request", "Show the log lines of one request, across all processes."),
    "capacity": ("skep.cli.capacity:capacity", "Count how many more servers of a flavor fit, and what runs out first."),
    "recovery": ("skep.cli.recovery:recovery", "List and decide the differences that a restored database left."),
    "server": ("skep.cli.server:server", "List and show servers, explain their placement."),
    "migration": ("skep.cli.migration:migration", "List and show moves of servers to other hosts."),
    "completion": ("skep.cli.completion:completion", "Print a script by which a shell completes commands by Tab."),
    "man": ("skep.cli.man:man", "Print the manual page with all commands."),
}
"""Name -> what runs it, and its line in the help."""


class Commands(click.Group):
    """The commands of `COMMANDS`. Errors of Skep become one line on standard error and an exit status."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click says so
        """Return the names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        try:
            command = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
            raise CommandRefused(f"`skep {cmd_name}` is not part of this installation") from None
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return what a word may become, without importing any command."""
        named = [CompletionItem(name, help=text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what it refuses or cannot do is told in one line."""
        try:
            return super().invoke(ctx)
        except Misconfigured as error:
            raise CommandRefused(str(error)) from error
        except SkepError as error:
            raise Failed(str(error)) from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="skep", message="%(prog)s %(version)s")
def skep() -> None:
    """Skep: a compute control plane that speaks Nova's API.

    `skep up` starts a whole cloud on this machine. Commands for a running cloud (cell, host, server, doctor) find it
    by OS_CLOUD and clouds.yaml or by the variables OS_*, as the `openstack` client does. If none of these is set, they
    use the cloud of the state directory.

    \b
    Examples:
      skep up
      skep server explain one
      skep host disable cell1-host2 --reason "new memory"

    Exit status: 0 success, 1 failure or a problem found, 2 invalid command line or configuration.
    """


def main() -> None:
    """Run the command line. A process that crashes in native code says on stderr where each of its threads was."""
    if sys.stderr is not None:
        faulthandler.enable()
    skep(prog_name="skep")
