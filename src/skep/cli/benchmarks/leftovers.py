"""Rows that no living server needs: what a run must not leave behind."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import httpx

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
    for path in sorted((state / "db").glob("*.db")):
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            for statement in _ABOVE if path.stem == "api" else _IN_CELL:
                total += connection.execute(statement, now if ":now" in statement else {}).fetchone()[0]
        finally:
            connection.close()
    return total + _claims(compute.removesuffix("/v2.1"), token)


def _claims(base: str, token: str) -> int:
    end = time.monotonic() + CLAIM_SECONDS
    while True:
        answer = httpx.get(f"{base}/admin/v1/hosts", headers={"X-Auth-Token": token}, timeout=30)
        answer.raise_for_status()
        claims = sum(host["claims"] or 0 for host in answer.json()["hosts"])
        if claims == 0 or time.monotonic() > end:
            return int(claims)
        time.sleep(0.5)
