"""Rows that no living server needs: what a run must not leave behind."""

from __future__ import annotations

import json
import shlex
import sqlite3
import time
from pathlib import Path

import httpx
import sqlalchemy as sa
from sqlalchemy.engine import make_url

_ORPHANED = "owner IS NOT NULL AND owner NOT IN (SELECT owner FROM leases WHERE lapses_at > :now)"
_DEAD = "(i.uuid IS NULL OR i.deleted_at IS NOT NULL OR i.attempt <> a.attempt)"
_ABOVE = (
    "SELECT count(*) FROM build_requests",
    "SELECT count(*) FROM instance_mappings WHERE cell IS NULL AND deleted_at IS NULL",
    f"SELECT count(*) FROM instance_mappings WHERE {_ORPHANED}",  # noqa: S608 - constants of this module
)
_IN_CELL = (
    "SELECT count(*) FROM instances WHERE state = 'staged'",
    f"SELECT count(*) FROM attempts a LEFT JOIN instances i ON i.uuid = a.instance WHERE a.open AND {_DEAD}",  # noqa: S608 - constants of this module
    f"SELECT count(*) FROM instances WHERE {_ORPHANED}",  # noqa: S608 - constants of this module
)
CLAIM_SECONDS = 10.0
"""Hosts settle the claims of servers that run with their next report."""


def leftover_rows(state: Path, compute: str, token: str) -> int:
    """Count, while the cloud still runs: rows in its databases, and claims that no host settles."""
    now = {"now": time.time_ns() // 1000}
    total = 0
    remote = state / "processes.env"
    if remote.exists():
        return _in_servers(remote, now["now"]) + _claims(compute.removesuffix("/v2.1"), token)
    for path in sorted((state / "db").glob("*.db")):
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            for statement in _ABOVE if path.stem == "api" else _IN_CELL:
                total += connection.execute(statement, now if ":now" in statement else {}).fetchone()[0]
        finally:
            connection.close()
    return total + _claims(compute.removesuffix("/v2.1"), token)


def _in_servers(settings: Path, now: int) -> int:
    """Count in the PostgreSQL databases that the variables of a cloud of processes name."""
    words = (shlex.split(line)[1].partition("=") for line in settings.read_text().splitlines())
    found = {name: value for name, _, value in words}
    places = [(found["SKEP_DATABASE__API_URL"], _ABOVE), (found["SKEP_DATABASE__CELL0_URL"], _IN_CELL)]
    places += [(cell["database_url"], _IN_CELL) for cell in json.loads(found["SKEP_CELLS"])]
    total = 0
    for url, statements in places:
        engine = sa.create_engine(make_url(url).set(drivername="postgresql+psycopg"))
        try:
            with engine.connect() as connection:
                for statement in statements:
                    values = {"now": now} if ":now" in statement else {}
                    total += int(connection.execute(sa.text(statement), values).scalar_one())
        finally:
            engine.dispose()
    return total


def _claims(base: str, token: str) -> int:
    end = time.monotonic() + CLAIM_SECONDS
    while True:
        answer = httpx.get(f"{base}/admin/v1/hosts", headers={"X-Auth-Token": token}, timeout=30)
        answer.raise_for_status()
        claims = sum(host["claims"] or 0 for host in answer.json()["hosts"])
        if claims == 0 or time.monotonic() > end:
            return int(claims)
        time.sleep(0.5)
