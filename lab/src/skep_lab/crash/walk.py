"""The crash walk: a cloud is killed at one point after another, started anew on what it left, and looked at.

One state directory serves many crashes: each start finds what the last crash left, and all must be well before the
next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import httpx
import msgspec

from skep.config.compute import FakeFailure
from skep.config.scheduler import SchedulerSettings
from skep.config.sections import Config, QuotaSettings, RetentionSettings
from skep.contracts.eventually import PATIENCE
from skep.contracts.http_cloud import http_config
from skep.processes.seeds import FLAVORS
from skep_lab.crash.operation import ALONE, APART, KEEPING, PLAIN, CloudKind
from skep_lab.crash.points import Point
from skep_lab.crash.process import POLL_SECONDS, CrashProcess
from skep_lab.witnesses import witness, witness_guests, witness_rows
from skep_lab.witnesses.witness import Findings, HostSeen, Promised

RECOVERY_SECONDS = PATIENCE
"""After the last fault every server is ACTIVE, ERROR with its reason, or gone as asked."""
CELLS, HOSTS = 2, 2
MEMBERS = CELLS * HOSTS
"""Servers of one request: one for each host, so that one of them meets each failing host."""
LARGER = FLAVORS[1]
"""What servers are resized to; they are made of the flavor before it."""
FAILING, MOVING, STAYING = "fails", "moves", "stays"
HOLDING, UNKEPT, LINGERING = "holds", "unkept", "lingers"
FAILURES = (
    FakeFailure(operation="spawn", host="cell1-host1", server=f"{FAILING}*", error="SpawnFailed"),
    FakeFailure(operation="spawn", host="cell1-*", server=f"{MOVING}*", error="SpawnFailed"),
    FakeFailure(operation="receive", server=f"{STAYING}*", error="NoSpaceLeft"),
    FakeFailure(operation="hand_over", server=f"{STAYING}*", error="NoSpaceLeft"),
    FakeFailure(operation="put_aside", server=f"{HOLDING}*", error="NoSpaceLeft"),
    FakeFailure(operation="preserve", server=f"{UNKEPT}*", error="NoSpaceLeft"),
    FakeFailure(operation="converge", server=f"{LINGERING}*", error="NoSpaceLeft"),
)
"""By the name of a server: one host of the first cell fails to build it, or all of them, so that it moves to the
second; or no host takes its disk or its memory, or its host does not let it go, or keeps no disk for a rebuild, so that
it is taken back by the host that it was about to leave; or it is copied without end."""


class Walk:
    """A cloud and what was asked of it."""

    together = 2
    """Servers of an operation: one to which something is done, the others stay as they are."""
    networks: object = "auto"
    """What servers have of networks."""
    flavor = "1"
    """Of which servers are."""

    def __init__(self, root: Path, kind: CloudKind = PLAIN) -> None:
        """Make a cloud; one that keeps servers deletes them softly, and keeps them longer than any test lasts."""
        self._keeps = kind == KEEPING
        config = msgspec.structs.replace(
            http_config(root, failures=FAILURES, quota=QuotaSettings(instances=-1, cores=-1, ram=-1)),
            # Otherwise the failing host would not be chosen a second time.
            scheduler=SchedulerSettings(build_failure_weight_multiplier=0.0),
        )
        config = msgspec.structs.replace(
            config,
            conductor=msgspec.structs.replace(
                config.conductor,
                lease_seconds=1.0,
                resend_seconds=0.3,
                allow_resize_to_same_host=kind == ALONE,
                moves_between_cells=True,
            ),
        )
        if self._keeps:
            kept = RetentionSettings(reclaim_instance_interval=86_400, shelved_offload_time=-1)
            config = msgspec.structs.replace(config, retention=kept)
        cells, hosts = {ALONE: (1, 1), APART: (CELLS, 1)}.get(kind, (CELLS, HOSTS))
        self.process = self.begun(root, config, cells, hosts)
        self.asked = Promised(interfaces=1)

    def begun(self, root: Path, config: Config, cells: int, hosts: int) -> CrashProcess:
        """Return the cloud, which has not started."""
        return CrashProcess(root, config, cells=cells, hosts=hosts)

    def stop(self) -> None:
        """Stop the cloud, and whatever is beside it."""
        self.process.stop()

    def create(self, name: str, members: int = MEMBERS) -> list[str]:
        """Ask for so many servers; the ids of those that a 202 promised, none when there was no answer."""
        body = {
            "server": {
                "name": name,
                "flavorRef": self.flavor,
                "imageRef": self.process.image,
                "networks": self.networks,
                "config_drive": True,
                "min_count": members,
                "max_count": members,
            }
        }
        answer = self.sent("POST", "/servers", body)
        if answer is None:
            return []
        answer.raise_for_status()
        # A 202 names one member; the others bear its name.
        self.asked.created.add(answer.json()["server"]["id"])
        return [answer.json()["server"]["id"]]

    def delete(self, uuid: str) -> bool:
        """Ask for the end of a server; False when there was no answer, so that it has to be asked again."""
        # Asked, it may go, whether an answer comes or not.
        self.asked.created.discard(uuid)
        if self._keeps:
            answer = self.sent("POST", f"/servers/{uuid}/action", {"forceDelete": None})
        else:
            answer = self.sent("DELETE", f"/servers/{uuid}")
        if answer is None:
            return False
        if answer.status_code not in (202, 204, 404):
            answer.raise_for_status()
        self.asked.deleted.add(uuid)
        return True

    def act(self, uuid: str, action: dict[str, object]) -> bool:
        """Ask for an action on a server; whether it was promised."""
        answer = self.sent("POST", f"/servers/{uuid}/action", action)
        return answer is not None and answer.raise_for_status().is_success

    def sent(self, method: str, path: str, body: object = None) -> httpx.Response | None:
        """Send a request to a cloud that may die meanwhile; None when no answer came."""
        try:
            return self.process.ask(method, path, body)
        except httpx.TransportError:
            return None

    def statuses(self) -> dict[str, str]:
        """Return what users see, and what admins see of soft-deleted servers."""
        shown = self.process.answer("/servers/detail")["servers"]
        if self._keeps:
            shown += self.process.answer("/servers/detail?soft_deleted=true&status=SOFT_DELETED")["servers"]
        return {one["id"]: one["status"] for one in shown}

    def observe(self) -> Findings:
        """Look once."""
        return witness.judge(
            witness.look(self.process.state, self.statuses(), hosts_seen(self.process)), self.asked, FAILURES
        )

    def recovered(self, down: int = 0) -> None:
        """Start the cloud on what there is and see that all is well in time; so many hosts are said to be down.

        Raises AssertionError naming what is not.
        """
        self.process.start(down)
        self.well("after a restart")

    def set_down(self, host: str, *, down: bool) -> None:
        """Say that a host is down, or that it is in use again, and see that all know it. Raises AssertionError."""
        asked = self.process.ask("PATCH", f"/admin/v1/hosts/{host}", {"forced_down": down})
        asked.raise_for_status()
        wanted = "up" if not down else "down"
        self.until(lambda: self._state_of(host) == wanted, f"{host} is {wanted}")

    def lose(self, host: str) -> None:
        """Have a host lose its power and be silent until the next start of the cloud."""
        self.process.lose(host)

    def _state_of(self, host: str) -> str:
        shown = self.process.answer(f"/admin/v1/hosts/{host}")["host"]
        return "up" if shown["state"] == "up" else "down"

    def until(self, probe: Callable[[], bool], what: str) -> None:
        """Wait until something is so. Raises AssertionError."""
        end = time.monotonic() + RECOVERY_SECONDS
        while not probe():
            if time.monotonic() > end:
                raise AssertionError(f"not in time: {what}; the end of the log:\n{self.process.tail()}")
            time.sleep(POLL_SECONDS)

    def host_of(self, uuid: str) -> str:
        """Return the host that has a server."""
        host = self._row(uuid).host
        assert host is not None
        return host

    def well(self, when: str) -> None:
        """See that all is well in time. Raises AssertionError naming what is not."""
        findings = witness.within(RECOVERY_SECONDS, self.observe)
        if not findings.clean:
            raise AssertionError(f"{when}:\n{findings.text()}\nthe end of the log:\n{self.process.tail()}")

    def crash(self, point: Point, trigger: Callable[[], object], *, comes: bool = True) -> None:
        """Arm the point, set it off and wait for the end of the process.

        `comes`: whether the point is sure to be reached; if not, the process is killed when it was not.

        Raises AssertionError when nothing came by.
        """
        self.process.arm(point)
        trigger()
        if self.process.died_by_itself(PATIENCE):
            return
        if comes:
            raise AssertionError(f"nothing came by {point}; the end of the log:\n{self.process.tail()}")
        self.process.kill()

    def wait_statuses(self, wanted: str) -> list[str]:
        """Wait until there are servers and all have this status; return them."""
        end = time.monotonic() + RECOVERY_SECONDS
        while True:
            statuses = self.statuses()
            if statuses and set(statuses.values()) == {wanted}:
                return sorted(statuses)
            if time.monotonic() > end:
                raise AssertionError(f"not all are {wanted}: {statuses}")
            time.sleep(POLL_SECONDS)

    def write_disk(self, uuid: str, content: bytes) -> None:
        """Write into the disk of a server what only its guest could have."""
        fresh = self.process.state / "content"
        fresh.write_bytes(content)
        # Not into the file: it may be that of an image, too.
        fresh.replace(self._disk(uuid))

    def has_disk(self, uuid: str, *, anew: bool) -> bool:
        """Tell whether a server has, where its row says that it is, the disk with its UUID that was written into it, or
        one of its image anew."""
        return self._disk(uuid).read_bytes() == (self.process.image_content() if anew else uuid.encode())

    def rows(self) -> witness_rows.Rows:
        """Read the databases."""
        return witness_rows.read(self.process.state)

    def _row(self, uuid: str) -> witness_rows.Row:
        [row] = [one for one in self.rows().rows if one.uuid == uuid]
        return row

    def _disk(self, uuid: str) -> Path:
        row = self._row(uuid)
        assert row.host is not None
        return witness_guests.disk(self.process.state, row.host, row.uuid, row.attempt)

    def wait_images(self, wanted: dict[str, str]) -> None:
        """Wait until the images that were made of servers, by name, have these statuses."""
        end = time.monotonic() + RECOVERY_SECONDS
        while (found := {one["name"]: one["status"] for one in self.process.images()}) != wanted:
            if time.monotonic() > end:
                raise AssertionError(f"images are {found}, not {wanted}")
            time.sleep(POLL_SECONDS)

    def remove_images(self) -> None:
        """Delete the images that were made of servers."""
        for one in self.process.images():
            self.process.remove_image(one["id"])

    def clear(self) -> None:
        """Delete all servers and see that nothing is left."""
        for uuid in self.statuses():
            self.delete(uuid)
        self.well("after deleting all")


class Answering(Protocol):
    """A cloud that can be asked."""

    def answer(self, path: str) -> Any:
        """Return what a GET answers. Raises httpx.HTTPStatusError unless it answers well."""


def hosts_seen(process: Answering) -> dict[str, HostSeen]:
    """Return all hosts as placement holds them."""
    found: dict[str, HostSeen] = {}
    for host in process.answer("/admin/v1/hosts")["hosts"]:
        shown = process.answer(f"/admin/v1/hosts/{host['host']}")["host"]
        found[host["host"]] = HostSeen(
            claims=tuple((claim["instance"], claim["attempt"]) for claim in shown["claimed_by"]),
            used={name: amounts["used"] for name, amounts in shown["resources"].items() if amounts["used"]},
        )
    return found
