"""Who gets into a PostgreSQL cluster of ours: whoever knows a password (SCRAM), by loopback, nobody else."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

SUPERUSER = "postgres"
ITERATIONS, SALT_BYTES = 4096, 16
"""PostgreSQL's own."""


def rules(password: str) -> str:
    """Return `pg_hba.conf`: what stands in no line is refused, replication and sockets too.

    It says with which password it was written, in a digest that tells nothing of it: so a later start knows whether
    the superuser has it.
    """
    digest = hashlib.sha256(b"superuser " + password.encode()).hexdigest()[:16]
    return f"# Written by Skep: each connection needs a password ({digest}).\nhost all all 127.0.0.1/32 scram-sha-256\n"


def is_closed(data: Path, password: str) -> bool:
    """Tell whether a cluster refuses whoever knows no password, and the superuser's is this one."""
    return (data / "pg_hba.conf").read_text(encoding="utf-8", errors="replace") == rules(password)


def close(data: Path, password: str, program: str, run_as: Mapping[str, Any]) -> None:
    """Give the superuser of a cluster a password, and let nobody in without one; only while no server runs on it.

    It may be repeated: the rules are written last. Raises RuntimeError when the password cannot be set.
    """
    verifier = _verifier(password)
    # A server with a single session takes nobody's connection: at no moment is the cluster open.
    ended = subprocess.run(
        [program, "--single", "-D", str(data), "-c", "exit_on_error=on", "-c", "log_statement=none", "postgres"],
        input=f"ALTER ROLE {SUPERUSER} PASSWORD '{verifier}';\n",
        text=True,
        capture_output=True,
        cwd=data,
        check=False,
        **run_as,
    )
    if ended.returncode:
        raise RuntimeError(f"the superuser's password cannot be set: {ended.stderr[-2000:]}")
    write_rules(data, password, run_as)


def write_rules(data: Path, password: str, run_as: Mapping[str, Any]) -> None:
    """Write which connections the server takes, whole or not at all."""
    fresh = data / "pg_hba.conf.new"
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(rules(password))
        file.flush()
        os.fsync(file.fileno())
    if run_as:
        os.chown(fresh, run_as["user"], run_as["group"])
    fresh.replace(data / "pg_hba.conf")


def give(connection: psycopg.Connection[tuple[Any, ...]], name: str, password: str) -> None:
    """Make a role and a database of this name that the role owns, or bring what is there to that.

    The role sees no other database. What the database holds is given to it by `give_content`.
    """
    role, database = sql.Identifier(name), sql.Identifier(name)
    known = connection.execute("SELECT FROM pg_roles WHERE rolname = %s", (name,)).fetchone()
    if known is None:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(role))
    set_password(connection, name, password)
    there = connection.execute("SELECT FROM pg_database WHERE datname = %s", (name,)).fetchone()
    if there is None:
        connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(database, role))
    connection.execute(sql.SQL("ALTER DATABASE {} OWNER TO {}").format(database, role))
    connection.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(database))


def give_content(connection: psycopg.Connection[tuple[Any, ...]], role: str) -> None:
    """Make a role the owner of all tables in the database of the connection; of an older release they are ours."""
    with connection.transaction():
        for schema, table in _foreign(connection, role):
            connection.execute(
                sql.SQL("ALTER TABLE {} OWNER TO {}").format(sql.Identifier(schema, table), sql.Identifier(role))
            )


def set_password(connection: psycopg.Connection[tuple[Any, ...]], role: str, password: str) -> None:
    """Give a role a password; the server is told only what it keeps of it."""
    statement = sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(role), sql.Literal(_verifier(password)))
    connection.execute(statement)


def _foreign(connection: psycopg.Connection[tuple[Any, ...]], role: str) -> Sequence[tuple[str, str]]:
    """Return the tables, views and free sequences of a database that belong to another role."""
    rows = connection.execute(
        """
        SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND c.relkind IN ('r', 'p', 'v', 'm', 'S')
          AND pg_get_userbyid(c.relowner) <> %s
          AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype IN ('a', 'i') AND c.relkind = 'S')
        """,
        (role,),
    )
    return [(schema, table) for schema, table in rows]


def _verifier(password: str) -> str:
    """Return what a server keeps of a password, by RFC 5803: from it nobody learns the password."""
    salt = secrets.token_bytes(SALT_BYTES)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, ITERATIONS)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    salt_text, stored_text, server_text = (base64.b64encode(part).decode() for part in (salt, stored, server))
    return f"SCRAM-SHA-256${ITERATIONS}:{salt_text}${stored_text}:{server_text}"
