"""`make chaos`: servers are built and deleted over HTTP while the cloud is killed again and again and hosts fail.

    python -m skep.testing.chaos --seed 7 --builds 200 --duration 60

All choices come from the seed, which is printed: what is asked, when the cloud dies (at a random moment, at a random
point of a random step, while it starts) and where. How they meet is up to the machine. At the end one JSON object is
printed; the exit status is 1 unless nothing is stuck, leaked, lost, built twice, wrongly ERROR or different in the
audit. What was found is told on standard error, and then the state directory is kept.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import httpx
import msgspec

from skep.config.compute import FakeFailure
from skep.config.sections import Config, QuotaSettings
from skep.domain.builds import STEPS
from skep.domain.ids import new_uuid
from skep.testing import witness, witness_guests
from skep.testing.crash_points import points_of
from skep.testing.crash_process import CrashProcess
from skep.testing.crash_walk import RECOVERY_SECONDS, hosts_seen
from skep.testing.http_cloud import http_config
from skep.testing.witness import Asked, Findings

CELLS, HOSTS = 2, 3
WORKERS = 4
PAUSE_SECONDS = (0.2, 3.0)
"""Between a start and what ends it."""
APART = "apart"
"""Servers with a name that begins so are members of one group whose policy is anti-affinity."""
KINDS = {"plain": 55, "fails": 15, "moves": 10, APART: 10, "nowhere": 5, "unacceptable": 5}
"""Names of servers begin so; how many of a hundred."""
FAILURES = (
    FakeFailure(operation="spawn", host="cell?-host1", server="fails*", error="SpawnFailed"),
    FakeFailure(operation="prepare", host="cell1-*", server="moves*", error="NoSpaceLeft"),
    FakeFailure(operation="spawn", server="nowhere*", error="SpawnFailed"),
    FakeFailure(operation="prepare", server="unacceptable*", error="ImageUnacceptable"),
    # Strikes never, and excuses an ERROR: when each host has a member, the next finds none.
    FakeFailure(operation="spawn", server=f"{APART}*", error="SpawnFailed", times=0),
)
"""What hosts do to servers, by their names: one host of each cell fails, a whole cell, all; the image is at fault."""
ACTIONS: tuple[dict[str, object], ...] = ({"os-stop": None}, {"os-start": None}, {"reboot": {"type": "HARD"}})


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a run came to."""

    seed: int
    builds: int
    """Creates that were answered 202."""
    kills: int
    active: int
    errors: int
    errors_unjustified: int
    stuck: int
    leaked: int
    double_built: int
    lost: int
    audit_differences: int

    @property
    def clean(self) -> bool:
        """Whether nothing went wrong."""
        wrong = (self.errors_unjustified, self.stuck, self.leaked, self.double_built, self.lost)
        return not any(wrong) and not self.audit_differences


class Chaos:
    """One run. `builds` creates, spread over `duration` seconds."""

    def __init__(self, root: Path, seed: int, builds: int, duration: float, config: Config | None = None) -> None:
        self.seed, self.builds, self.duration = seed, builds, duration
        self.process = CrashProcess(root, config or chaos_config(root), cells=CELLS, hosts=HOSTS)
        self.asked = Asked()
        self.promised = 0
        self.kills = 0
        self._begun = 0
        self._group = ""
        self._apart: set[str] = set()
        self._up = asyncio.Event()
        self._over = asyncio.Event()
        self._deletes: set[asyncio.Task[None]] = set()

    async def run(self) -> tuple[Report, Findings, list[str]]:
        """Do it all; return the report, what was found, and what the audit says."""
        await asyncio.to_thread(self.process.start)
        self._up.set()
        try:
            group = {"server_group": {"name": APART, "policy": "anti-affinity"}}
            made = await asyncio.to_thread(self.process.ask, "POST", "/os-server-groups", group)
            self._group = made.raise_for_status().json()["server_group"]["id"]
            disturbing = asyncio.create_task(self.disturb())
            workers = [asyncio.create_task(self._work(random.Random(f"{self.seed}-{i}"))) for i in range(WORKERS)]
            await asyncio.gather(*workers)
            await asyncio.gather(*self._deletes)
            self._over.set()
            await disturbing
            return await asyncio.to_thread(self._judge)
        finally:
            await asyncio.to_thread(self.process.stop)

    @property
    def over(self) -> bool:
        """Whether everything was asked for that shall be."""
        return self._over.is_set()

    async def disturb(self) -> None:
        """Kill and start anew until the load is over; the last life is left alone."""
        dice = random.Random(f"{self.seed}-kills")
        while not self.over:
            how = dice.choice(("moment", "point", "point", "start"))
            if how == "point":
                step = dice.choice(sorted(STEPS))
                point = msgspec.structs.replace(dice.choice(points_of(step)), nth=dice.randint(1, 4))
                await asyncio.to_thread(self.process.arm, point)
                await asyncio.to_thread(self.process.died_by_itself, dice.uniform(*PAUSE_SECONDS))
            else:
                await self.unless_over(dice.uniform(*PAUSE_SECONDS))
            self._up.clear()
            await asyncio.to_thread(self.process.kill)
            self.kills += 1
            if how == "start":
                await asyncio.to_thread(self.process.launch)
                await self.unless_over(dice.uniform(0.3, 2.0))
                await asyncio.to_thread(self.process.kill)
                self.kills += 1
            await asyncio.to_thread(self.process.start)
            self._up.set()

    async def unless_over(self, seconds: float) -> None:
        """Wait, but not beyond the end of the load."""
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return

    async def _work(self, dice: random.Random) -> None:
        pause = self.duration * WORKERS / self.builds
        while self._begun < self.builds:
            self._begun += 1
            await self._create(dice)
            await asyncio.sleep(dice.uniform(0.5, 1.5) * pause)

    async def create_one(self, kind: str) -> str:
        """Create until one is promised; return it. One without an answer may have been stored: it is not counted."""
        while True:
            answer = await self._sent("POST", "/servers", self._body(kind, f"{kind}-{new_uuid()[:8]}"))
            if answer is not None and answer.status_code == 202:
                break
        uuid = str(answer.json()["server"]["id"])
        self.promised += 1
        self.asked.created.add(uuid)
        return uuid

    async def _create(self, dice: random.Random) -> None:
        kind = dice.choices(list(KINDS), list(KINDS.values()))[0]
        uuid = await self.create_one(kind)
        if kind == APART:
            self._apart.add(uuid)
        if dice.random() < 0.5:
            self._later(self._delete(uuid, dice.uniform(0, 3)))
        elif dice.random() < 0.3:
            self._later(self._act(uuid, dice.choice(ACTIONS), dice.uniform(0.5, 3)))

    def _body(self, kind: str, name: str, count: int = 1) -> dict[str, object]:
        server = {"name": name, "flavorRef": "1", "networks": "none", "imageRef": self.process.image}
        hints = {"group": self._group} if kind == APART else {}
        return {"server": {**server, "min_count": count, "max_count": count}, "os:scheduler_hints": hints}

    def _later(self, story: Coroutine[None, None, None]) -> None:
        self._deletes.add(asyncio.create_task(story))

    async def _delete(self, uuid: str, wait: float) -> None:
        await asyncio.sleep(wait)
        while True:
            answer = await self._sent("DELETE", f"/servers/{uuid}")
            if answer is not None and answer.status_code in (204, 404):
                break
        self.asked.created.discard(uuid)
        self.asked.deleted.add(uuid)

    async def _act(self, uuid: str, action: dict[str, object], wait: float) -> None:
        """Ask for it once: in which state the server is when it comes, and whether it comes, is chance."""
        await asyncio.sleep(wait)
        await self._sent("POST", f"/servers/{uuid}/action", action)

    async def _sent(self, method: str, path: str, body: object = None) -> httpx.Response | None:
        """Send a request to the cloud once it runs; None when no answer came."""
        await self._up.wait()
        try:
            return await asyncio.to_thread(self.process.ask, method, path, body)
        except httpx.TransportError:
            # The killer has not noticed yet: not at once again.
            await asyncio.sleep(0.05)
            return None

    def _judge(self) -> tuple[Report, Findings, list[str]]:
        findings = witness.within(RECOVERY_SECONDS, self._observe)
        statuses = list(self._statuses().values())
        slots = [*self._together(), *self._slots()]
        findings = msgspec.structs.replace(findings, leaked=(*findings.leaked, *slots))
        audit = self._audit()
        report = Report(
            seed=self.seed,
            builds=self.promised,
            kills=self.kills,
            active=statuses.count("ACTIVE"),
            errors=statuses.count("ERROR"),
            errors_unjustified=len(findings.errors_unjustified),
            stuck=len(findings.stuck),
            leaked=len(findings.leaked),
            double_built=len(findings.double_built),
            lost=len(findings.lost),
            audit_differences=len(audit),
        )
        return report, findings, audit

    def _together(self) -> Iterator[str]:
        """Say which members of the group were ever on one host at one moment."""
        members = [life for life in witness_guests.lives(self.process.state) if life.instance in self._apart]
        for one, other in combinations(members, 2):
            if one.host == other.host and one.overlaps(other):
                yield f"slot of a host was given twice: {one} beside {other}"

    def _slots(self) -> Iterator[str]:
        """Delete all members of the group and say which hosts do not take a new one: their slot was not freed."""
        members = {uuid for uuid, name in self._names().items() if name.startswith(APART)}
        for uuid in members:
            self.process.ask("DELETE", f"/servers/{uuid}")
        self.asked.created -= members
        self.asked.deleted |= members
        yield from witness.within(RECOVERY_SECONDS, self._observe).stuck
        body = self._body(APART, APART, CELLS * HOSTS)
        self.process.ask("POST", "/servers", body).raise_for_status()
        yield from witness.within(RECOVERY_SECONDS, self._observe).stuck
        names = self._names()
        for uuid, status in self._statuses().items():
            if names[uuid].startswith(APART) and status != "ACTIVE":
                yield f"slot without its server: {names[uuid]} is {status} although no host has a member of its group"

    def _names(self) -> dict[str, str]:
        return {one["id"]: one["name"] for one in self._servers()}

    def _observe(self) -> Findings:
        seen = witness.look(self.process.state, self._statuses(), hosts_seen(self.process))
        return witness.judge(seen, self.asked, FAILURES)

    def _statuses(self) -> dict[str, str]:
        return {one["id"]: one["status"] for one in self._servers()}

    def _servers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        marker = ""
        while True:
            page = self.process.answer(f"/servers/detail?limit=500{marker}")["servers"]
            found += page
            if len(page) < 500:
                return found
            marker = f"&marker={page[-1]['id']}"

    def _audit(self) -> list[str]:
        """Ask the audit until it finds nothing, for as long as the cloud has to mend it."""
        end = time.monotonic() + RECOVERY_SECONDS
        while True:
            audit = self.process.answer("/admin/v1/audit")["audit"]
            found = [f"{one['kind']}: {one['subject']}: {one['evidence']}" for one in audit["differences"]]
            found += [f"unread: {one}" for one in audit["unread"]]
            if not found or time.monotonic() > end:
                return found


def chaos_config(root: Path) -> Config:
    """Return a cloud whose hosts fail as FAILURES says."""
    quick = http_config(
        root, failures=FAILURES, quota=QuotaSettings(instances=-1, cores=-1, ram=-1, server_group_members=-1)
    )
    fake = msgspec.structs.replace(quick.compute.fake, spawn_delay=0.05, destroy_delay=0.05, memory_mb=1 << 20)
    return msgspec.structs.replace(quick, compute=msgspec.structs.replace(quick.compute, fake=fake))


def chaos(*, seed: int, builds: int, duration: float) -> Report:
    """Run once in a directory of its own; it is removed when all is well."""
    root = Path(tempfile.mkdtemp(prefix="skep-chaos-"))
    sys.stderr.write(f"seed {seed}\n")
    report, findings, audit = asyncio.run(Chaos(root, seed, builds, duration).run())
    if report.clean:
        shutil.rmtree(root)
    else:
        sys.stderr.write("\n".join([findings.text(), *(f"audit: {one}" for one in audit), f"kept: {root}\n"]))
    return report


def main() -> int:
    """Read the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="chaos", description="Builds and deletes under kills and failures.")
    parser.add_argument(
        "--seed", type=int, default=None, help="where all choices come from; default: another each time"
    )
    parser.add_argument("--builds", type=int, default=200, help="creates that the cloud promises")
    parser.add_argument("--duration", type=float, default=60.0, help="seconds over which they are spread")
    chosen = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if chosen.seed is None else chosen.seed
    report = chaos(seed=seed, builds=chosen.builds, duration=chosen.duration)
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    return 0 if report.clean else 1


if __name__ == "__main__":
    sys.exit(main())
