"""Rows that no living server needs: what a run must not leave behind."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path

import httpx

from skep.database import leftovers
from skep.database.locations import Location, location_of
from skep.database.opening import looking_at

CLAIM_SECONDS = 10.0
"""Hosts settle the claims of servers that run with their next report."""


def leftover_rows(state: Path, compute: str, token: str) -> int:
    """Count, while the cloud still runs: rows in its databases, and claims that no host settles."""
    now = time.time_ns() // 1000
    remote = state / "processes.env"
    rows = 0
    for location, is_above in _in_servers(remote) if remote.exists() else _in_files(state / "db"):
        with looking_at(location) as connection:
            rows += leftovers.above(connection, now) if is_above else leftovers.in_cell(connection, now)
    return rows + _claims(compute.removesuffix("/v2.1"), token)


def _in_files(folder: Path) -> list[tuple[Location, bool]]:
    """Return the SQLite files of a cloud, each with whether it is the API database."""
    return [(path, path.stem == "api") for path in sorted(folder.glob("*.db"))]


def _in_servers(settings: Path) -> list[tuple[Location, bool]]:
    """Return the PostgreSQL databases that the variables of a cloud of processes name, as `_in_files` does."""
    words = (shlex.split(line)[1].partition("=") for line in settings.read_text().splitlines())
    found = {name: value for name, _, value in words}
    urls = [found["SKEP_DATABASE__API_URL"], found["SKEP_DATABASE__CELL0_URL"]]
    urls += [cell["database_url"] for cell in json.loads(found["SKEP_CELLS"])]
    return [(location_of(url, Path()), place == 0) for place, url in enumerate(urls)]


def _claims(base: str, token: str) -> int:
    end = time.monotonic() + CLAIM_SECONDS
    while True:
        answer = httpx.get(f"{base}/admin/v1/hosts", headers={"X-Auth-Token": token}, timeout=30)
        answer.raise_for_status()
        claims = sum(host["claims"] or 0 for host in answer.json()["hosts"])
        if claims == 0 or time.monotonic() > end:
            return int(claims)
        time.sleep(0.5)
