"""The load of `make chaos`, and what is looked at afterwards: servers are built, acted on and deleted over HTTP.

What breaks meanwhile is said by the kinds of load (`skep_lab.chaos.run`, `soak.run`, `chaos.processes`).
"""

from __future__ import annotations

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Coroutine, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import httpx
import msgspec

from skep.config.compute import FakeFailure
from skep.config.sections import Config, QuotaSettings, RetentionSettings
from skep.contracts.http_cloud import http_config
from skep.domain.ids import new_uuid
from skep_lab.chaos.contents import WrittenDisks
from skep_lab.chaos.lives import DELETE, FORCE_DELETE, LARGER, LIVES, SMALL, UNSHELVE, Action
from skep_lab.chaos.living import LivingServers
from skep_lab.crash.walk import RECOVERY_SECONDS, hosts_seen
from skep_lab.witnesses import witness
from skep_lab.witnesses.witness import Findings, HostSeen, Promised, Seen
from skep_lab.witnesses.witness_guests import Life

CELLS, HOSTS = 2, 3
WORKERS = 4
ROOM, ROOM_BESIDE = 4, 1000
"""Each host has room for so many times the builds, and more: creates whose answer was lost were stored as well, and the
load goes on for as long as the faults do."""
REFUSED_SECONDS = 0.2
"""Before a request is sent again that the cloud refused."""
APART = "apart"
"""Servers with a name that begins so are members of one group whose policy is anti-affinity."""
KEPT_SECONDS = 86_400
"""For how long: longer than any run."""
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
LIVING = 0.7
"""The share of servers to which something is done."""


LivingT = TypeVar("LivingT", bound=LivingServers)


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
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
    actions: dict[str, int] = {}
    """Those that were promised, by their keys."""
    acted: int = 0
    """Their sum, without those that end servers for good."""
    written: int = 0
    """Servers whose disks were read for what their guests had written."""
    faults: dict[str, int] = {}
    """What was done, and how often, beside the kills."""
    faults_at_once: int = 0
    """The most that overlapped, a kill among them."""
    faults_beside: int = 0
    """Those that began while another one lasted."""

    @property
    def clean(self) -> bool:
        """Whether nothing went wrong."""
        wrong = (self.errors_unjustified, self.stuck, self.leaked, self.double_built, self.lost)
        return not any(wrong) and not self.audit_differences

    def with_evacuations(self, promised: int) -> Self:
        """Return this, and so many evacuations among the actions."""
        return msgspec.structs.replace(
            self, actions={**self.actions, "evacuate": promised}, acted=self.acted + promised
        )


class Subject(Protocol):
    """A cloud that load is put on."""

    cells: int
    hosts: int
    """In each cell."""
    state: Path
    """Where the directories of hosts are."""

    @property
    def image(self) -> str:
        """The id of an image."""

    def ask(self, method: str, path: str, body: object = None) -> httpx.Response:
        """Send a request. Raises httpx.TransportError when no answer comes."""

    def answer(self, path: str) -> Any:
        """Return what a GET answers. Raises httpx.HTTPStatusError unless it answers well."""

    def look(self, statuses: dict[str, str], hosts: dict[str, HostSeen]) -> Seen:
        """Read databases and the hosts' logs, to go with what users and admins see."""

    def guests(self) -> list[Life]:
        """Return all guests that its hosts ever had."""


class Load(ABC):
    """One run. `builds` creates, spread over `duration` seconds."""

    failures: Collection[FakeFailure] = FAILURES
    """What excuses an ERROR."""
    interfaces: int | None = 1
    """How many each server is asked to have: one, or none; None: nobody looks."""
    keeps = True
    """Whether the cloud keeps deleted servers for a while."""

    def __init__(self, cloud: Subject, seed: int, builds: int, duration: float) -> None:
        self.contents = WrittenDisks(cloud.state)
        self.seed, self.builds, self.duration = seed, builds, duration
        self.cloud = cloud
        self.asked = Promised()
        self.promised = 0
        self.kills = 0
        self._begun = 0
        self._group = ""
        self._apart: set[str] = set()
        self.up = asyncio.Event()
        """Whether requests are sent now."""
        self.slowness = 1.0
        """How much longer than where little else runs everything takes: creates come as much more rarely."""
        self._over = asyncio.Event()
        self._deletes: set[asyncio.Task[None]] = set()
        self._ended = 0
        self._living = self.living(LivingServers)

    def living(self, kind: type[LivingT]) -> LivingT:
        """Return what leads the lives of servers."""
        return kind(self.sent, self.contents, lambda: self.cloud.image, self.asked.created.discard)

    async def run(self) -> tuple[LoadReport, Findings, list[str]]:
        """Do it all; return the report, what was found, and what the audit says.

        Raises ExceptionGroup as soon as a fault cannot be done, or a request cannot be made.
        """
        self.asked.interfaces = self.interfaces
        await self.begin()
        self.up.set()
        try:
            group = {"server_group": {"name": APART, "policy": "anti-affinity"}}
            made = await asyncio.to_thread(self.cloud.ask, "POST", "/os-server-groups", group)
            self._group = made.raise_for_status().json()["server_group"]["id"]
            # Requests wait while nothing runs: without a hand that starts it again they would wait for ever.
            async with asyncio.TaskGroup() as hands:
                hands.create_task(self.disturb())
                hands.create_task(self._ask_for_all())
            return await asyncio.to_thread(self._judge)
        finally:
            await self.end()

    @abstractmethod
    async def begin(self) -> None:
        """Start the cloud and wait until its hosts may get servers."""

    @abstractmethod
    async def end(self) -> None:
        """Stop the cloud."""

    @property
    def over(self) -> bool:
        """Whether everything was asked for that shall be."""
        return self._over.is_set()

    @abstractmethod
    async def disturb(self) -> None:
        """Break things until the load is `over`; leave all that it takes running."""

    async def unless_over(self, seconds: float) -> None:
        """Wait, but not beyond the end of the load."""
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return

    def lives(self) -> Sequence[Sequence[Action]]:
        """Return what may be done to a server now."""
        return LIVES

    def more(self) -> bool:
        """Whether another server is asked for."""
        return self._begun < self.builds

    async def _ask_for_all(self) -> None:
        await asyncio.gather(*(self._work(random.Random(f"{self.seed}-{i}")) for i in range(WORKERS)))
        await asyncio.gather(*self._deletes)
        self._over.set()

    async def _work(self, dice: random.Random) -> None:
        pause = self.duration * WORKERS / self.builds
        while self.more():
            self._begun += 1
            await self._create(dice)
            await asyncio.sleep(dice.uniform(0.5, 1.5) * pause * self.slowness)

    async def create_one(self, kind: str) -> str:
        """Create until one is promised; return it. One without an answer may have been stored: it is not counted."""
        while True:
            answer = await self.sent("POST", "/servers", await self.body_of(kind))
            if answer is not None and answer.status_code == 202:
                break
        uuid = str(answer.json()["server"]["id"])
        self.promised += 1
        if uuid not in self.asked.deleted:
            self.asked.created.add(uuid)
        return uuid

    async def body_of(self, kind: str) -> dict[str, object]:
        """Return what asks for a server."""
        return self._body(kind, f"{kind}-{new_uuid()[:8]}")

    async def _create(self, dice: random.Random) -> None:
        kind = dice.choices(list(KINDS), list(KINDS.values()))[0]
        uuid = await self.create_one(kind)
        if kind == APART:
            self._apart.add(uuid)
        goes = dice.random() < 0.5
        if goes:
            self._later(self._delete(uuid, dice.uniform(0, 6)))
        if dice.random() < LIVING:
            life = self._living.next_life(self.lives(), dice)
            self._later(self._living.lead(uuid, life, random.Random(dice.random()), writes=not goes))

    def _body(self, kind: str, name: str, count: int = 1) -> dict[str, object]:
        networks = "none" if self.interfaces == 0 else "auto"
        server = {"name": name, "flavorRef": SMALL.flavorid, "networks": networks, "imageRef": self.cloud.image}
        hints = {"group": self._group} if kind == APART else {}
        return {"server": {**server, "min_count": count, "max_count": count}, "os:scheduler_hints": hints}

    def _later(self, story: Coroutine[None, None, None]) -> None:
        self._deletes.add(asyncio.create_task(story))

    async def _delete(self, uuid: str, wait: float) -> None:
        await asyncio.sleep(wait)
        while True:
            answer = await self.sent(*self._for_good(uuid))
            if answer is not None and answer.status_code in (202, 204, 404):
                break
        if answer.status_code != 404:
            self._living.done[FORCE_DELETE if self.keeps else DELETE] += 1
            self._ended += 1
        self.given_up(uuid)

    def _for_good(self, uuid: str) -> tuple[str, str, Action | None]:
        """Return the request that deletes a server, whether the cloud would keep it or not."""
        if self.keeps:
            return "POST", f"/servers/{uuid}/action", {FORCE_DELETE: None}
        return "DELETE", f"/servers/{uuid}", None

    def given_up(self, uuid: str) -> None:
        """Know that a server is deleted, which may be before the answer to its create is read."""
        self.asked.created.discard(uuid)
        self.asked.deleted.add(uuid)

    def forget(self, uuid: str) -> None:
        """Know that a server is neither promised nor given up any more: a backup was restored that is older."""
        self.asked.created.discard(uuid)

    def forget_group(self, before: Collection[str]) -> None:
        """Know that only these servers may be members of the group: of others a restored backup does not know it."""
        self._apart &= set(before)

    async def shown(self) -> dict[str, str]:
        """Return what users see: server -> status."""
        return await asyncio.to_thread(self._statuses)

    async def sent(self, method: str, path: str, body: object = None) -> httpx.Response | None:
        """Send a request to the cloud once it runs; None when no answer came."""
        await self.up.wait()
        try:
            answer = await asyncio.to_thread(self.cloud.ask, method, path, body)
        except httpx.TransportError as error:
            self.noticed(method, path, None, str(error) or type(error).__name__)
            # The killer has not noticed yet: not at once again.
            await asyncio.sleep(0.05)
            return None
        if answer.status_code >= 500:
            self.noticed(method, path, answer.status_code, answer.text)
            await asyncio.sleep(REFUSED_SECONDS)
        return answer

    def noticed(self, method: str, path: str, status: int | None, text: str) -> None:  # noqa: B027 - most look away
        """Be told of an answer that says the cloud is at fault, or of none (`status` is None)."""

    def _judge(self) -> tuple[LoadReport, Findings, list[str]]:
        findings = witness.within(RECOVERY_SECONDS, self._observe)
        statuses = list(self._statuses().values())
        if self._unshelved():
            findings = witness.within(RECOVERY_SECONDS, self._observe)
        slots = [*self._together(), *self._slots()]
        lost = (*findings.lost, *self.contents.lost(self.cloud.look({}, {}).rows))
        findings = msgspec.structs.replace(findings, leaked=(*findings.leaked, *slots), lost=lost)
        audit = self._audit()
        report = LoadReport(
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
            actions=dict(self._living.done),
            acted=sum(self._living.done.values()) - self._ended,
            written=self.contents.number,
        )
        return report, findings, audit

    def _unshelved(self) -> bool:
        """Have servers built again that are in images alone, so that their disks can be read; whether there are any."""
        there = [uuid for uuid, status in self._statuses().items() if status == "SHELVED_OFFLOADED"]
        for uuid in there:
            self.cloud.ask("POST", f"/servers/{uuid}/action", UNSHELVE)
        return bool(there)

    def _together(self) -> Iterator[str]:
        """Say which members of the group were ever on one host at one moment."""
        members = [life for life in self.cloud.guests() if life.instance in self._apart]
        for one, other in combinations(members, 2):
            if one.host == other.host and one.overlaps(other):
                yield f"slot of a host was given twice: {one} beside {other}"

    def _slots(self) -> Iterator[str]:
        """Delete all members of the group and say which hosts do not take a new one: their slot was not freed."""
        members = {uuid for uuid, name in self._names().items() if name.startswith(APART)}
        for uuid in members:
            self.cloud.ask(*self._for_good(uuid))
        self.asked.created -= members
        self.asked.deleted |= members
        yield from witness.within(RECOVERY_SECONDS, self._observe).stuck
        body = self._body(APART, APART, self.cloud.cells * self.cloud.hosts)
        self.cloud.ask("POST", "/servers", body).raise_for_status()
        yield from witness.within(RECOVERY_SECONDS, self._observe).stuck
        names = self._names()
        for uuid, status in self._statuses().items():
            if names[uuid].startswith(APART) and status != "ACTIVE":
                yield f"slot without its server: {names[uuid]} is {status} although no host has a member of its group"

    def _names(self) -> dict[str, str]:
        """Return the names of all servers, once every cell answers: of others only the id is shown."""
        end = time.monotonic() + RECOVERY_SECONDS
        while True:
            servers = self._servers()
            if all("name" in one for one in servers) or time.monotonic() > end:
                return {one["id"]: one["name"] for one in servers}

    def _observe(self) -> Findings:
        seen = self.cloud.look(self._statuses(), hosts_seen(self.cloud))
        return witness.judge(seen, self.asked, self.failures)

    def _statuses(self) -> dict[str, str]:
        return {one["id"]: one["status"] for one in self._servers()}

    def _servers(self) -> list[dict[str, Any]]:
        """Return what users see, and what admins see of soft-deleted servers."""
        return [*self._listed(""), *(self._listed("&soft_deleted=true&status=SOFT_DELETED") if self.keeps else [])]

    def _listed(self, which: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        marker = ""
        while True:
            page = self.cloud.answer(f"/servers/detail?limit=500{which}{marker}")["servers"]
            found += page
            if len(page) < 500:
                return found
            marker = f"&marker={page[-1]['id']}"

    def _audit(self) -> list[str]:
        """Ask the audit until it finds nothing, for as long as the cloud has to mend it."""
        end = time.monotonic() + RECOVERY_SECONDS
        while True:
            audit = self.cloud.answer("/admin/v1/audit")["audit"]
            found = [f"{one['kind']}: {one['subject']}: {one['evidence']}" for one in audit["differences"]]
            found += [f"unread: {one}" for one in audit["unread"]]
            if not found or time.monotonic() > end:
                return found


def chaos_config(root: Path, builds: int) -> Config:
    """Return a cloud whose hosts fail as FAILURES says, and of which each has room for all that will ever be asked for.

    So nothing but a fault makes an ERROR: an honest lack of room would look like one that no fault excuses.
    """
    quick = http_config(
        root, failures=FAILURES, quota=QuotaSettings(instances=-1, cores=-1, ram=-1, server_group_members=-1)
    )
    most = ROOM * builds + ROOM_BESIDE
    fake = msgspec.structs.replace(
        quick.compute.fake,
        spawn_delay=0.05,
        copy_delay=0.1,
        destroy_delay=0.05,
        vcpus=most * LARGER.vcpus,
        memory_mb=most * LARGER.memory_mb,
        disk_gb=most * LARGER.root_gb,
    )
    networks = msgspec.structs.replace(quick.networks, quota_port=-1, auto_allocated_cidr="10.128.0.0/12")
    compute = msgspec.structs.replace(quick.compute, fake=fake)
    return msgspec.structs.replace(quick, compute=compute, networks=networks)


def keeping(config: Config) -> Config:
    """Return the same cloud, which keeps deleted servers, shelved ones on their hosts, and resizes within hosts."""
    retention = RetentionSettings(reclaim_instance_interval=KEPT_SECONDS, shelved_offload_time=-1)
    conductor = msgspec.structs.replace(config.conductor, allow_resize_to_same_host=True)
    return msgspec.structs.replace(config, retention=retention, conductor=conductor)
