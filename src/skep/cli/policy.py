"""`skep policy`: the rules in force, what a file changes in them, and whether somebody may do something."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from skep.cli.config import config_option
from skep.cli.failures import Failed
from skep.cli.output import Format, format_option, print_rows
from skep.cli.tables import Table

LIST = Table({"rule": "Rule", "check": "Check", "source": "Comes from", "asked": "Asked"}, gives_way=("asked",))
DIFF = Table({"rule": "Rule", "change": "Change", "default": "Default", "file": "File"})
CHECK = Table({"rule": "Rule", "allowed": "Allowed", "check": "Check"})

file_option = click.option(
    "--policy-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Policy file to look at; default: `[api] policy_file` of the configuration.",
)


@click.group()
def policy() -> None:
    """Show and try the rules of who may do what in the compute API.

    \b
    Example: skep policy list
    """


@policy.command("list")
@click.argument("pattern", default="*", metavar="[PATTERN]")
@config_option
@file_option
@format_option
def list_(pattern: str, config_file: Path | None, policy_file: Path | None, form: Format) -> None:
    """Print the rules in force whose names fit PATTERN, and whether they come from the file.

    A rule that is not asked belongs to something of Nova that Skep does not serve.

    \b
    Example: skep policy list "*:servers:*"
    """
    from skep.api.policy import Policy
    from skep.api.policy_file import DEFAULTS
    from skep.api.policy_rules import ASKED_INSIDE, BASE
    from skep.api.routes import ROUTES

    file = _file(config_file, policy_file)
    asked = {route.rule for route in ROUTES} | ASKED_INSIDE | {rule.name for rule in BASE}
    checks = Policy(None if file is None else str(file), tell=_warn).checks
    rows = [
        {
            "rule": name,
            "check": checks[name],
            "source": "default" if checks[name] == _normal(name, DEFAULTS[name]) else "file",
            "asked": name in asked,
        }
        for name in DEFAULTS
        if fnmatchcase(name, pattern)
    ]
    print_rows(_words(rows, "asked") if form == "table" else rows, LIST, form)


@policy.command()
@config_option
@file_option
@format_option
def diff(config_file: Path | None, policy_file: Path | None, form: Format) -> None:
    """Print what the policy file changes: its rules beside the defaults.

    `none` is a line that says what is the default anyway, `unknown` one that no rule has the name of.

    \b
    Example: skep policy diff --policy-file policy.yaml
    """
    from skep.api.policy_file import DEFAULTS, FORMER_NAMES, problems, read

    file = _file(config_file, policy_file)
    if file is None:
        raise Failed("No policy file: `[api] policy_file` is empty, and --policy-file is not given.")
    written = read(file)
    for problem in problems(written):
        _warn(problem)
    rows: list[dict[str, Any]] = []
    for name, check in written.items():
        default = DEFAULTS.get(name)
        if default is None:
            change = "former name" if name in FORMER_NAMES else "unknown"
        else:
            change = "none" if _normal(name, check) == _normal(name, default) else "changed"
        rows.append({"rule": name, "change": change, "default": default, "file": check})
    print_rows(rows, DIFF, form)


@policy.command()
@click.argument("pattern", metavar="RULE")
@click.option("--role", "roles", multiple=True, metavar="NAME", help="A role of the caller; may be repeated.")
@click.option("--project", default="own", metavar="ID", help="The caller's project.  [default: own]")
@click.option("--user", default="caller", metavar="ID", help="The caller.  [default: caller]")
@click.option("--target-project", metavar="ID", help="Whose thing it is; default: the caller's project.")
@click.option("--target-user", metavar="ID", help="Whose thing it is; default: the caller.")
@click.option(
    "--scope",
    type=click.Choice(["project", "system", "domain"]),
    default="project",
    help="What the caller's token is for.  [default: project]",
)
@config_option
@file_option
@format_option
def check(
    pattern: str,
    roles: tuple[str, ...],
    project: str,
    user: str,
    target_project: str | None,
    target_user: str | None,
    scope: str,
    config_file: Path | None,
    policy_file: Path | None,
    form: Format,
) -> None:
    """Tell whether a caller may act under RULE, a name or a pattern. Exit status 1: not under all of them.

    Roles imply no others here: name each one that the caller's token has.

    \b
    Example: skep policy check "os_compute_api:servers:*" --role member --role reader --target-project other
    """
    from skep.api.policy import Policy
    from skep.api.policy_file import DEFAULTS
    from skep.domain.context import DomainContext, RequestContext
    from skep.domain.ids import ProjectId, RequestId, UserId

    names = [name for name in DEFAULTS if fnmatchcase(name, pattern)]
    if not names:
        raise Failed(f"RULE: expected the name of a rule or a pattern of names, got {pattern}")
    file = _file(config_file, policy_file)
    rules = Policy(None if file is None else str(file), tell=_warn)
    request, caller = RequestId("req-policy"), UserId(user)
    context = (
        DomainContext(request_id=request, user_id=caller, roles=roles, domain_id="default")
        if scope == "domain"
        else RequestContext(
            request_id=request,
            project_id=ProjectId(project if scope == "project" else ""),
            user_id=caller,
            roles=roles,
            system_scope=scope == "system",
        )
    )
    checks = rules.checks
    rows = [
        {
            "rule": name,
            "allowed": rules.allows(name, context, project_id=target_project, user_id=target_user),
            "check": checks[name],
        }
        for name in names
    ]
    print_rows(_words(rows, "allowed") if form == "table" else rows, CHECK, form)
    if not all(row["allowed"] for row in rows):
        raise click.exceptions.Exit(1)


def _file(config_file: Path | None, policy_file: Path | None) -> Path | None:
    """Return the policy file that is meant; None where there is none."""
    from skep.config import load

    if policy_file is not None:
        return policy_file
    configured = load(config_file, os.environ).config.api.policy_file
    return Path(configured) if configured else None


def _normal(name: str, check: str) -> str:
    """Return a check in the spelling of oslo.policy, so that two can be compared."""
    from oslo_policy.policy import Rules

    return str(Rules.from_dict({name: check})[name])


def _warn(problem: object) -> None:
    click.echo(f"warning: {problem}", err=True)


def _words(rows: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return [{**row, key: "yes" if row[key] else "no"} for row in rows]
