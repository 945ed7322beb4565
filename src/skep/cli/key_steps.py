"""In which order each secret is replaced without downtime: what `skep keys` prints, and docs/keys.md explains. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

NEXT = "skep keys rotate {secret}"
NATS = "nats"

WAYS: Mapping[str, str] = {
    "tokens": "Keys of tokens: processes follow their file. Users notice nothing.",
    "sealing": "Keys that seal passwords, addresses and kept answers: processes follow their file.",
    "host": "Key of a host: it names its successor, and the cell accepts the successor from then on.",
    "database": (
        "Passwords of PostgreSQL roles: a second role signs in and acts as the owner, so that old and new are both "
        "accepted. `OWNER` is the role that owns the database; `skep_api_2` is the new one."
    ),
    "nats": (
        "NATS users are derived from the secrets in keys/nats.key: NATS servers accept users of every secret, Skep "
        "uses those of the first."
    ),
    "credentials": "Credentials of cells, namespaces and enrolment: two are valid at once.",
    "servers": (
        "Passwords of the PostgreSQL and NATS that `skep up --processes` starts: its processes follow them by files."
    ),
}

CHECKLISTS: Mapping[str, tuple[str, ...]] = {
    "tokens": (
        "skep keys rotate tokens: a new key is added; nothing is encrypted by it yet.",
        "Copy keys/tokens.keys and keys/rotation.json to every other machine with an identity service.",
        "skep keys rotate tokens: the new key encrypts. Copy both files again.",
        "Wait as long as tokens are good (identity.token_expiration): skep keys rotate tokens --check.",
        "skep keys rotate tokens: the old keys are dropped. Copy both files again.",
    ),
    "sealing": (
        "Every API process and every host is of this release: an older one reads a single key.",
        "skep keys rotate sealing: a new key is added; nothing is sealed by it yet.",
        "Copy keys/secrets.key and keys/rotation.json to every machine above the cells, and to hosts that have them.",
        "skep keys rotate sealing: the new key seals. Copy both files again.",
        "skep keys rotate sealing --check: what still needs an old key. Kept answers need a day, builds their end.",
        (
            "skep keys rotate sealing: addresses of cells are sealed again, the old keys are dropped. Copy both "
            "files again. Backups keep their own keys: `skep db restore` adds those."
        ),
    ),
    "host": (
        "Every conductor of the cell is of this release: an older one ignores the next key, and nothing changes.",
        "On the host, as the user of its agent: skep keys rotate host --config compute.toml creates the next key.",
        "Restart the agent (systemctl restart skep-compute): it registers with the next key; guests run on.",
        "skep keys rotate host --config compute.toml --check: the cell has accepted it, the previous key is refused.",
    ),
    "database": (
        (
            "In PostgreSQL: CREATE ROLE skep_api_2 LOGIN PASSWORD 'NEW' IN ROLE OWNER; "
            "ALTER ROLE skep_api_2 SET role = 'OWNER';"
        ),
        (
            "Put the new user and password into database.api_url (cell0_url), or for a cell: skep cell set NAME "
            "--database-url postgresql://skep_NAME_2:NEW@..., and into the configuration of its conductors."
        ),
        "Restart the processes that read it, one after the other; wait for /readyz of each.",
        "skep keys connections: no session of the old role is left.",
        "In PostgreSQL: ALTER ROLE OWNER NOLOGIN; (it stays the owner). For a role that is no owner: DROP ROLE.",
    ),
    "nats": (
        "Every process above the cells is of this release: an older one reads a single secret.",
        "skep keys rotate nats: a new secret is added. Copy keys/nats.key to the other machines above the cells.",
        (
            "skep nats config with the options as before, on each NATS server: reload it (SIGHUP); with --host-users "
            "restart it, one server after the other. It accepts users of both."
        ),
        "skep keys rotate nats: the new secret is used. Copy keys/nats.key and keys/rotation.json again.",
        (
            "For each role skep nats credentials into the place of its credentials file, which it follows (or "
            "skep nats url into transport.sign_in_file, or into transport.url and restart it)."
        ),
        (
            "For each host skep nats credentials host --host HOST into the place of its nats.creds, which its agent "
            "follows. Where hosts have no users of their own: enrol it again and restart its agent."
        ),
        "skep keys rotate nats: the old secret is dropped. Copy both files, then skep nats config as in step 3.",
    ),
    "credentials": (
        "skep cell credential create CELL (or skep namespace credential create NAME): the new secret, shown once.",
        "Give it to the program, and have the program use it.",
        "skep cell credential list CELL: Last used of the old one no longer changes.",
        "skep cell credential delete CELL ID: the old one is refused from now on.",
        "Enrolment tokens: skep cell enrolment-token CELL, then skep cell revoke-enrolment-token CELL ID; hosts stay.",
    ),
    "servers": (
        "skep keys rotate servers: both have new passwords, and processes use them. NATS still accepts its old user.",
        "skep keys rotate servers --check: every process has had the time to sign in again.",
        "skep keys rotate servers: NATS refuses its old user. A cloud that is stopped needs the first step only.",
    ),
}


def after(secret: str, step: str, key: str, file: Path) -> str:
    """Return what was done, and what comes next."""
    if secret == NATS:
        return after_nats(step, key)
    copy = f"Copy {file} and {file.with_name('rotation.json')} to the other machines that have them"
    again = NEXT.format(secret=secret)
    if step == "add":
        return (
            f"Key {key} is added: it reads, nothing is encrypted by it yet.\n"
            f"Next: {copy}; then `{again}` uses it. Where there is no other machine, now."
        )
    if step == "use":
        return (
            f"Key {key} encrypts from now on; the old ones still read.\n"
            f"Next: {copy}; `{again} --check` says when the old ones may go, `{again}` drops them."
        )
    return f"Only key {key} is left.\nNext: {copy}. The rotation is over."


def after_nats(step: str, key: str) -> str:
    """Return what was done for NATS: its servers and those who sign in have to be told."""
    more = "see `skep keys steps nats`"
    if step == "add":
        return (
            f"Secret {key} is added: no user is derived from it yet.\nNext: give it to the NATS servers ({more}); then "
            "`skep keys rotate nats` uses it."
        )
    if step == "use":
        return (
            f"Users are derived from secret {key} from now on; those of the old one are still accepted.\nNext: give "
            f"each role and each host its new credentials ({more}); then `skep keys rotate nats` drops the old one."
        )
    return f"Only secret {key} is left.\nNext: have the NATS servers forget the old one ({more}). The rotation is over."
