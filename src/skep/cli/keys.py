"""`skep keys`: replaces secrets of an installation while it runs, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from skep.cli.config import config_option
from skep.cli.failures import CommandRefused, Failed
from skep.cli.key_steps import CHECKLISTS, NATS, WAYS, after
from skep.cli.output import Format, format_option, print_json, print_rows, print_said
from skep.cli.server_keys import own_servers, rotate_servers
from skep.cli.tables import Table
from skep.domain.clock import isoformat

if TYPE_CHECKING:
    from skep.config import Config
    from skep.processes.rotation import Rotation, RotationRecord, Secret

SEALING: Secret = "sealing"
HOST = "host"
SERVERS = "servers"
IN_FILES = ("tokens", SEALING, NATS, HOST, SERVERS)
TABLE = Table(
    {"secret": "Secret", "keys": "Keys", "next": "Next step", "why": "Why not now", "file": "File"},
    gives_way=("file", "keys"),
)

CONNECTIONS = Table({"database": "Database", "role": "Role", "sessions": "Sessions", "address": "From"})


@click.group()
def keys() -> None:
    """Replace secrets while everything runs: old and new ones are both taken until the old ones go.

    \b
    Example: skep keys list
    """


@keys.command("list")
@config_option
@format_option
def list_(config_file: Path | None, form: Format) -> None:
    """List the keys in files, the one that encrypts first, and which step of a rotation comes next.

    \b
    Example: skep keys list
    """
    from skep.processes.rotation import Rotation, next_step

    config = _loaded(config_file)
    rotation = Rotation(_directory(config))
    rows = []
    signs_in = config.transport.accounts or config.transport.host_users
    for secret in _secrets():
        record = rotation.record(secret)
        if secret == NATS and not (signs_in or rotation.keys(secret)):
            continue  # nothing follows from it here
        rows.append(
            {
                "secret": secret,
                "keys": list(rotation.keys(secret)),
                "new_key": record.key if record else None,
                "added_at": isoformat(record.added_at) if record else None,
                "used_at": isoformat(record.used_at) if record and record.used_at else None,
                "next": next_step(record),
                "why": _refused(config, rotation, secret, record),
                "file": str(rotation.file_of(secret)),
            }
        )
    rows += own_servers(_directory(config))
    print_rows(rows, TABLE, form)


@keys.command()
@click.argument("secret", type=click.Choice(IN_FILES))
@click.option("--host", metavar="NAME", help="With host: one of the hosts whose directories are here.")
@click.option(
    "--one-machine", is_flag=True, help="Nothing else has these files: add the new key and use it in one step."
)
@click.option(
    "--although-needed",
    is_flag=True,
    help="Drop old keys at once, because others know one: their tokens end, and all else that they sealed is lost.",
)
@click.option("--check", is_flag=True, help="Change nothing; exit status 1 while the next step must wait.")
@config_option
@format_option
def rotate(
    secret: Secret,
    host: str | None,
    one_machine: bool,
    although_needed: bool,
    check: bool,
    config_file: Path | None,
    form: Format,
) -> None:
    """Take the next step of a rotation: add a new key, use it, drop the old ones. It says what comes then.

    tokens: what encrypts tokens of the embedded identity service. sealing: what seals passwords and files of servers,
    addresses of cells and answers kept for idempotency keys. Processes that run follow by themselves. host: by which
    the agent of this machine proves what it says; it brings the new one at its next start. nats: what users of NATS
    servers follow from; they are told between the steps. servers: the passwords of
    the PostgreSQL and NATS of `skep up --processes`, used at once, in a second step the old ones are refused. Other
    secrets: `skep keys steps`.

    \b
    Example: skep keys rotate sealing
             skep keys rotate sealing --check
    """
    from skep.domain.clock import Clock
    from skep.processes.rotation import Rotation, next_step

    if secret == HOST:
        _rotate_host(host, check, config_file, form)
        return
    if host is not None:
        raise click.UsageError("--host: expected with `host` only")
    config = _loaded(config_file)
    directory = _directory(config)
    if secret == SERVERS:
        rotate_servers(directory, check, form)
        return
    if not directory.keys.is_dir():
        raise CommandRefused(
            f"there are no keys in {directory.keys}; --config or SKEP_STATE__DIRECTORY names another one"
        )
    rotation = Rotation(directory)
    if not rotation.keys(secret):
        maker = "`skep nats config`" if secret == NATS else "a start of the API"
        raise CommandRefused(f"{rotation.file_of(secret)} is not there yet: {maker} makes it")
    record = rotation.record(secret)
    if secret == SEALING and record is not None and record.used_at is not None and not check:
        _seal_anew(config)
    why = _refused(config, rotation, secret, record)
    if why is not None and not (although_needed and not check):
        raise Failed(f"not yet: {why}")
    if check:
        print_said("The next step may be taken.", {"secret": secret, "ready": True}, form)
        return
    taken = [rotation.advance(secret, Clock().now(), next_step(record))]
    if one_machine and taken[0].step == "add":
        taken.append(rotation.advance(secret, Clock().now(), "use"))
    last = taken[-1]
    told = {"secret": secret, "steps": [one.step for one in taken], "key": last.key, "dropped": last.dropped}
    print_said(after(secret, last.step, last.key, rotation.file_of(secret)), told, form)


@keys.command()
@click.argument("secret", type=click.Choice(list(CHECKLISTS)))
@format_option
def steps(secret: str, form: Format) -> None:
    """Print in which order a secret is replaced without downtime, as a checklist.

    \b
    Example: skep keys steps database
    """
    if form == "json":
        print_json({"secret": secret, "steps": CHECKLISTS[secret]})
        return
    click.echo(f"{WAYS[secret]}\n")
    for number, step in enumerate(CHECKLISTS[secret], 1):
        click.echo(f"{number:>2}. {step}")


@keys.command()
@config_option
@format_option
def connections(config_file: Path | None, form: Format) -> None:
    """List who is signed in to each PostgreSQL database: the role by whose password, from where, how often.

    Exit with 1 when a database cannot be asked. SQLite files have no passwords.

    \b
    Example: skep keys connections
    """
    from skep.cli.databases import locations
    from skep.processes.sessions_of_databases import sessions

    found, away = sessions(locations(_loaded(config_file))[0])
    print_rows(found, CONNECTIONS, form)
    if away:
        raise Failed(f"cannot be asked: {'; '.join(away)}")


def _rotate_host(host: str | None, check: bool, config_file: Path | None, form: Format) -> None:
    """Make the key that follows a host's key, or see that it has followed."""
    import os

    from skep.compute import identity
    from skep.config import load
    from skep.processes.directory import StateDirectory

    state = StateDirectory(Path(load(config_file, os.environ).config.state.directory))
    there = {file.parent.name: file.parent for file in sorted(state.root.glob(f"hosts/*/*/{identity.IDENTITY_FILE}"))}
    if host is None and len(there) == 1:
        (host,) = there
    if host not in there:
        known = ", ".join(there) or "none"
        raise CommandRefused(
            f"--host: expected the name of a host whose directory is in {state.root}; there are: {known}"
        )
    if check:
        found = identity.load(there[host])
        if found is not None and found.next_seed:
            raise Failed(f"the agent of {host} has not registered with its next key yet: restart it")
        print_said(f"The key of {host} is the newest that was made for it.", {"host": host, "ready": True}, form)
        return
    identity.make_next_key(there[host])
    said = (
        f"The next key of {host} is made. Next: restart its agent, which registers with it; guests run on.\n"
        f"`skep keys rotate host --host {host} --check` says whether its cell has taken it."
    )
    print_said(said, {"host": host, "steps": ["add"]}, form)


def _secrets() -> tuple[Secret, ...]:
    from skep.processes.rotation import Secret

    return get_args(Secret)


def _loaded(config_file: Path | None) -> Config:
    from skep.cli.databases import loaded

    return loaded(config_file)


def _directory(config: Config) -> Any:
    from skep.cli.databases import state_directory

    return state_directory(config)


def _refused(config: Config, rotation: Rotation, secret: Secret, record: RotationRecord | None) -> str | None:
    """Return why the next step may not be taken now; None when it may."""
    from skep.domain.clock import Clock
    from skep.processes.rotation import refusal

    now = Clock().now()
    settled: Mapping[str, int] = {"tokens": config.identity.token_expiration, "sealing": 0, "nats": 0}
    needed = {}
    if secret == SEALING and record is not None and record.used_at is not None:
        needed = _needed(config, rotation, secret, now)
    said = refusal(record, now, settled[secret], needed)
    return None if said is None else said.reason


def _needed(config: Config, rotation: Rotation, secret: Secret, now: int) -> dict[str, int]:
    from skep.cli.databases import locations
    from skep.processes.sealed_rows import needing_old_keys
    from skep.standalone.key_ring import keys_in

    # Addresses are sealed anew by the step that drops the old keys.
    return needing_old_keys(locations(config)[0], keys_in(rotation.file_of(secret)), now)


def _seal_anew(config: Config) -> None:
    from skep.cli.databases import locations
    from skep.processes.sealed_rows import seal_addresses_anew

    seal_addresses_anew(locations(config)[0]["api"], _directory(config).seal())
