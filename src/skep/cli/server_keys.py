"""`skep keys rotate servers`: other passwords for the PostgreSQL and NATS that `skep up --processes` starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skep.cli.failures import CommandRefused, Failed
from skep.cli.output import Format, print_said

if TYPE_CHECKING:
    from skep.processes.directory import StateDirectory

NEXT = "skep keys rotate servers"


def own_servers(directory: StateDirectory) -> list[dict[str, Any]]:
    """Return how far a rotation of the passwords of own servers is, as a row; none where a cloud has no such."""
    from skep.processes.supervisor.server_rotation import ServerRotation

    if not (directory.servers / "passwords.json").exists():
        return []
    rotation = ServerRotation(directory)
    row = {"secret": "servers", "keys": list(rotation.users), "new_key": None, "added_at": None, "used_at": None}
    return [{**row, "next": rotation.next_step, "why": rotation.refusal(), "file": str(rotation.file)}]


def rotate_servers(directory: StateDirectory, check: bool, form: Format) -> None:
    """Take the next step and say what comes then."""
    from skep.domain.errors import Misconfigured, Unreachable
    from skep.processes.directory import InUse
    from skep.processes.supervisor.server_rotation import ServerRotation

    try:
        rotation = ServerRotation(directory)
    except Misconfigured as error:
        raise CommandRefused(
            f"{error}; for servers elsewhere: skep keys steps database, skep keys steps nats"
        ) from error
    step = rotation.next_step
    why = rotation.refusal()
    if why is not None:
        raise Failed(f"not yet: {why}")
    if check:
        print_said("The next step may be taken.", {"secret": "servers", "ready": True}, form)
        return
    try:
        taken = rotation.advance(step)
    except (Unreachable, InUse) as error:
        raise Failed(str(error)) from error
    said = (
        "PostgreSQL and NATS have new passwords, and the processes follow them by themselves. The old ones of "
        f"PostgreSQL are refused.\nNext: `{NEXT}` has NATS refuse its old user; `{NEXT} --check` says when."
        if taken.steps == ("use",)
        else "NATS refuses its old user. The rotation is over."
        if taken.running
        else "The next start gives PostgreSQL and NATS new passwords; the old ones are forgotten. The rotation is over."
    )
    print_said(said, {"secret": "servers", "steps": list(taken.steps), "running": taken.running}, form)
