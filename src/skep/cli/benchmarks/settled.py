"""`skep bench settled`: what a cloud costs in which nothing happens, with many servers in it."""

from __future__ import annotations

import asyncio
import json
import math
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec

from skep.cli.benchmarks.build import benchmark_config
from skep.cli.benchmarks.process import CloudProcess, cloud_process
from skep.domain.errors import Unavailable
from skep.domain.ids import new_uuid

TRIES = 300
SETTLE_SECONDS = 15.0
"""After a start, before the counting begins: hosts register, report and are asserted."""


class SettledFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one run came to."""

    servers: int
    hosts: int
    cells: int
    seconds: float
    cpu_s_per_minute: float
    rss_mib: float


def run(*, servers: int, hosts: int, cells: int, seconds: float) -> SettledFigures:
    """Fill a cloud with servers that run, start it, and count its CPU while nobody asks anything of it."""
    per_cell = math.ceil(hosts / cells)
    each = math.ceil(servers / (per_cell * cells))
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as name:
        root = Path(name)
        config = roomy_config(root, each)
        with cloud_process(root, config, cells=cells, hosts=per_cell) as cloud:
            compute, token = cloud.wait_ready(per_cell * cells)
            template = asyncio.run(first_server(cloud, compute, token))
        filled = Filling(root / "state", template).fill(servers)
        with cloud_process(root, config, cells=cells, hosts=per_cell) as cloud:
            cloud.wait_ready(per_cell * cells)
            time.sleep(SETTLE_SECONDS)
            cpu, began = cloud.cpu_seconds(), time.monotonic()
            time.sleep(seconds)
            spent, took = cloud.cpu_seconds() - cpu, time.monotonic() - began
            rss = cloud.memory_mib("VmRSS")
    return SettledFigures(
        servers=filled,
        hosts=per_cell * cells,
        cells=cells,
        seconds=round(took, 1),
        cpu_s_per_minute=round(spent * 60 / took, 3),
        rss_mib=round(rss, 1),
    )


async def first_server(cloud: CloudProcess, compute: str, token: str, networks: Sequence[str] = ()) -> str:
    """Create one real server, whose rows the others are copies of; return its id. It has a port on each network."""
    headers = {"X-Auth-Token": token}
    async with httpx.AsyncClient(headers=headers, timeout=60) as client:
        images = (await client.get(f"{cloud.images_url.removesuffix('/v2')}/v2/images")).json()["images"]
        wanted: dict[str, object] = {"name": "settled", "imageRef": images[0]["id"], "flavorRef": "1"}
        if networks:
            wanted["networks"] = [{"uuid": network} for network in networks]
        body = {"server": wanted}
        server = (await client.post(f"{compute}/servers", json=body)).raise_for_status().json()["server"]["id"]
        shown = {"status": "BUILD"}
        for _ in range(TRIES):
            shown = (await client.get(f"{compute}/servers/{server}")).json()["server"]
            if shown["status"] == "ACTIVE":
                return str(server)
            await asyncio.sleep(0.1)
    raise Unavailable(f"the first server is {shown['status']}, not ACTIVE")


class Filling:
    """Copies the rows of one running server, and its guest, over all hosts of a stopped cloud."""

    def __init__(self, state: Path, template: str, projects: Sequence[str] = ()) -> None:
        """`projects`: to which the copies belong in turn; without any, to that of the template."""
        self._state = state
        self._template = template
        self._projects = projects
        self._api = sqlite3.connect(state / "db" / "api.db", isolation_level=None)
        self._api.row_factory = sqlite3.Row

    def fill(self, servers: int) -> int:
        """Add servers until there are so many; return how many there are."""
        hosts = [dict(row) for row in self._api.execute("SELECT node, host, cell FROM host_mappings ORDER BY host")]
        names = {row["uuid"]: row["name"] for row in self._api.execute("SELECT uuid, name FROM cells")}
        home = self._api.execute("SELECT cell FROM instance_mappings WHERE instance = ?", (self._template,)).fetchone()
        source = self._cell(names[home["cell"]])
        rows = {
            table: dict(source.execute(f"SELECT * FROM {table} WHERE {key} = ?", (self._template,)).fetchone())  # noqa: S608
            for table, key in (("instances", "uuid"), ("attempts", "instance"), ("actions", "instance"))
        }
        guest = self._guest(rows["instances"])
        source.close()
        share = math.ceil((servers - 1) / len(hosts))
        self._fill_sums(share * len(hosts))
        for host in hosts:
            uuids = [new_uuid() for _ in range(share)]
            self._fill_cell(names[host["cell"]], host, rows, uuids)
            self._fill_above(host, uuids)
            self._fill_host(names[host["cell"]], host["host"], guest, uuids)
        self._api.close()
        return share * len(hosts) + 1

    def _fill_sums(self, servers: int) -> None:
        if not self._projects:
            self._api.execute("UPDATE quota_sums SET instances = instances + ?", (servers,))
            return
        sums = dict(self._api.execute("SELECT * FROM quota_sums").fetchone())
        marks = ", ".join("?" for _ in sums)
        for project in self._projects:
            row = {**sums, "project_id": project, "instances": math.ceil(servers / len(self._projects))}
            statement = f"INSERT INTO quota_sums ({', '.join(row)}) VALUES ({marks})"  # noqa: S608
            self._api.execute(statement, list(row.values()))

    def _owner(self, number: int) -> dict[str, str]:
        return {"project_id": self._projects[number % len(self._projects)]} if self._projects else {}

    def _cell(self, name: str) -> sqlite3.Connection:
        connection = sqlite3.connect(self._state / "db" / f"{name}.db", isolation_level=None)
        connection.row_factory = sqlite3.Row
        return connection

    def _fill_cell(self, cell: str, host: dict[str, Any], rows: dict[str, dict[str, Any]], uuids: list[str]) -> None:
        here = {"host": host["host"], "node": host["node"]}
        instance = json.loads(rows["instances"]["body"])
        # Else their ports would be bound anew while the cloud is measured.
        bound = {"bound_to": host["host"]} if rows["instances"]["bound_to"] else {}
        with self._cell(cell) as connection:
            connection.execute("BEGIN")
            for table, key in (("instances", "uuid"), ("attempts", "instance"), ("actions", "instance")):
                columns = list(rows[table])
                marks = ", ".join("?" for _ in columns)
                own = [
                    {name: value for name, value in {**here, **bound, **self._owner(number)}.items() if name in columns}
                    for number in range(len(uuids))
                ]
                connection.executemany(
                    f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})",  # noqa: S608
                    (
                        list(
                            (
                                {**rows[table], **own[number], key: uuid}
                                | _body(table, instance, uuid, {**here, **self._owner(number)})
                            ).values()
                        )
                        for number, uuid in enumerate(uuids)
                    ),
                )
            connection.execute("COMMIT")
        connection.close()

    def _fill_above(self, host: dict[str, Any], uuids: list[str]) -> None:
        copies = {
            table: dict(
                self._api.execute(f"SELECT * FROM {table} WHERE instance = ?", (self._template,)).fetchone()  # noqa: S608
            )
            for table in ("instance_mappings", "request_specs", "quota_charges")
        }
        copies["instance_mappings"]["cell"] = host["cell"]
        self._api.execute("BEGIN")
        for table, row in copies.items():
            marks = ", ".join("?" for _ in row)
            self._api.executemany(
                f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})",  # noqa: S608
                (
                    list({**row, "instance": uuid, **(self._owner(number) if "project_id" in row else {})}.values())
                    for number, uuid in enumerate(uuids)
                ),
            )
        self._api.execute("COMMIT")

    def _guest(self, instance: dict[str, Any]) -> list[str]:
        home = next((self._state / "hosts").glob(f"*/{instance['host']}/guests.log"))
        return [line for line in home.read_text().splitlines() if self._template in line]

    def _fill_host(self, cell: str, host: str, guest: list[str], uuids: list[str]) -> None:
        lines = (line.replace(self._template, uuid) for uuid in uuids for line in guest)
        path = self._state / "hosts" / cell / host / "guests.log"
        with path.open("a") as log:
            log.writelines(f"{line}\n" for line in lines)


def _body(table: str, instance: dict[str, Any], uuid: str, here: dict[str, Any]) -> dict[str, Any]:
    return {"body": json.dumps({**instance, "uuid": uuid, **here}).encode()} if table == "instances" else {}


def roomy_config(root: Path, each: int, *, networks: bool = False) -> str:
    """Return a configuration whose hosts have room for `each` servers, and whose log is short."""
    return f"""{benchmark_config(root, networks=networks)}
vcpus = {each + 10}
memory_mb = {(each + 10) * 1024}
disk_gb = {(each + 10) * 2}
[log]
level = "warning"
"""
