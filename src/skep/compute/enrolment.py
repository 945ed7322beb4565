"""How a machine becomes a host: it makes its identity, is told of its cell, and writes down what its agent needs.

The identity is made before anybody is asked, in a place of its own, and moves to the host's directory with the answer;
who is interrupted asks again with the same key, and uses the token once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from skep.compute import enrolled_config
from skep.compute.identity import IDENTITY_FILE, HostIdentity, keep_cell_key, load, load_or_mint
from skep.compute.whole_file import write_whole
from skep.domain.errors import Misconfigured
from skep.domain.ids import CellUuid
from skep.domain.signatures import Signer

PENDING = "enrolling"
CA_FILE = "ca.pem"
CREDENTIALS_FILE = "nats.creds"
MARK = "# Written by `skep enrol`"


class EnrolledCell(msgspec.Struct, frozen=True, kw_only=True):
    """The cell that a host belongs to."""

    uuid: CellUuid
    name: str
    public_key: bytes = b""
    """By which the agent knows its conductors; empty: an API of a release whose cells had none."""


class Messaging(msgspec.Struct, frozen=True, kw_only=True):
    """How the agent reaches it."""

    url: str
    prefix: str
    ca: str = ""
    credentials: str = ""
    """NATS credentials of this host alone; empty: hosts have no users of their own, or an API of before 0.6.0."""
    inbox: str = ""

    def __repr__(self) -> str:
        """Leaves out what signs in."""
        return f"Messaging(prefix={self.prefix!r}, inbox={self.inbox!r})"


class Enrolment(msgspec.Struct, frozen=True, kw_only=True):
    """What the admin API answers."""

    cell: EnrolledCell
    host: str
    messaging: Messaging


def begin(state: Path, host: str) -> HostIdentity:
    """Return the identity with which a machine asks: of the host that it is already, or a new one.

    Raises Misconfigured when the state directory cannot be used, or has the host in two cells.
    """
    there = sorted((state / "hosts").glob(f"*/{host}/{IDENTITY_FILE}"))
    if len(there) > 1:
        raise Misconfigured(f"{state}/hosts has host {host} in {len(there)} cells; move the wrong one away")
    try:
        return load_or_mint(there[0].parent if there else state / PENDING / host, host)
    except OSError as error:
        raise Misconfigured(f"{state} cannot be used: {error.strerror}") from error


def request_body(identity: HostIdentity) -> dict[str, Any]:
    """Return what the machine tells of itself."""
    public_key = Signer(identity.seed, CellUuid("")).public_key
    body: dict[str, Any] = msgspec.to_builtins({"host": identity.host, "node": identity.node, "public_key": public_key})
    return body


def complete(state: Path, enrolment: Enrolment, config: Path) -> Path:
    """Write down what was answered; return the directory of the host. It may be repeated.

    What an operator has added to the configuration file stays.

    Raises Misconfigured when the configuration file is somebody else's, the directory another host's, or the host is of
    another cell.
    """
    host = enrolment.host
    directory = state / "hosts" / enrolment.cell.name / host
    pending = state / PENDING / host
    refuse_foreign(config)
    for other in state.glob(f"hosts/*/{host}/{IDENTITY_FILE}"):
        if other.parent != directory:
            raise Misconfigured(
                f"{other.parent} has host {host} as one of cell {other.parent.parent.name}, and it was enrolled into "
                f"cell {enrolment.cell.name}: see that it has no guests, move that directory away, and enrol it again"
            )
    try:
        said = _configuration(state, directory, enrolment, config)
        directory.mkdir(parents=True, exist_ok=True)
        if load(directory) is None:
            (pending / IDENTITY_FILE).replace(directory / IDENTITY_FILE)
            pending.rmdir()
        if enrolment.cell.public_key:
            keep_cell_key(directory, enrolment.cell.public_key)
        if enrolment.messaging.ca:
            _write(state / CA_FILE, enrolment.messaging.ca)
        if enrolment.messaging.credentials:
            _write(directory / CREDENTIALS_FILE, enrolment.messaging.credentials)
        _write(config, said)
    except OSError as error:
        raise Misconfigured(f"{error.filename or state} cannot be written: {error.strerror}") from error
    return directory


def refuse_foreign(config: Path) -> None:
    """See that a file which is there was written by an enrolment. Raises Misconfigured."""
    if config.exists() and not config.read_text(encoding="utf-8", errors="replace").startswith(MARK):
        raise Misconfigured(f"{config} is there and was not written by `skep enrol`: name another file (--output)")


def _configuration(state: Path, directory: Path, enrolment: Enrolment, config: Path) -> str:
    """Return what the configuration file becomes. Raises Misconfigured, OSError."""
    cell, messaging = enrolment.cell, enrolment.messaging
    said: enrolled_config.Sections = {
        "state": {"directory": str(state.absolute())},
        "transport": {
            "kind": "nats",
            "url": messaging.url,
            "prefix": messaging.prefix,
            "ca_file": str(state.absolute() / CA_FILE) if messaging.ca else None,
            "credentials_file": str(directory.absolute() / CREDENTIALS_FILE) if messaging.credentials else None,
            "inbox": messaging.inbox or None,
        },
        "compute": {"cell": cell.uuid, "cell_name": cell.name, "host": enrolment.host},
    }
    mark = f"{MARK}: the agent of host {enrolment.host} in cell {cell.name}. Keep it to yourself."
    if not config.exists():
        return enrolled_config.fresh(mark, said)
    return enrolled_config.renewed(config, config.read_text(encoding="utf-8"), mark, said)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.encode())
