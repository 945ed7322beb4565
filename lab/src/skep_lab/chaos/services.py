"""Chaos of servers with ports and volumes: the services beside the cloud fail as well, in every way that there is."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from skep.config.sections import Config
from skep_lab.beside import judge
from skep_lab.beside.process import ProcessBeside
from skep_lab.beside.services import ServicesBeside
from skep_lab.chaos.lives import Action
from skep_lab.chaos.living_beside import LIVES_BESIDE, LivingBeside
from skep_lab.chaos.load import CELLS, HOSTS, LoadReport
from skep_lab.chaos.one_process import Chaos
from skep_lab.crash.points import BESIDE_STEPS
from skep_lab.crash.process import CrashProcess
from skep_lab.faulty_service import Mishap
from skep_lab.witnesses.witness import Findings

WELL_SECONDS, ILL_SECONDS = (2.0, 8.0), (0.3, 2.5)
"""For how long a service answers, and for how long it does not."""
RESTART = "restarts"
FAULTS: tuple[Mishap | str, ...] = (
    *(one for one in Mishap if one is not Mishap.ENDLESS),
    RESTART,
    RESTART,
)
"""An endless answer would keep the other services waiting, which are in the same process."""
PORTS = 2
"""Of each server: one of its own and one of its user's."""
INTERNAL = 500
BROKEN = "which was made for the server, is error"
"""Says of a server in ERROR that the volume service was restarted while it made a volume."""


class BesideReport(LoadReport, frozen=True, kw_only=True):
    """What a run came to beside services."""

    answers_500: int
    things: dict[str, int]
    """How many volumes and ports users brought; `given`: volumes that were to go with their server."""

    @property
    def clean(self) -> bool:
        """Whether nothing went wrong."""
        return super().clean and not self.answers_500


class ChaosBeside(Chaos):
    """A whole cloud in one process beside a network and a volume service, all of which fail."""

    interfaces = None
    steps = BESIDE_STEPS
    pause_seconds = (2.0, 15.0)
    """Each build asks the services some twenty times, and begins anew where the cloud dies."""

    def __init__(self, root: Path, seed: int, builds: int, duration: float) -> None:
        folder = root / "services"
        folder.mkdir()
        self.services = ServicesBeside(folder)
        self.services.start()
        super().__init__(root, seed, builds, duration)
        self._things = random.Random(f"{seed}-things")
        self._service_faults: Counter[str] = Counter()
        self._wanted: dict[str, int] = {}
        """How many volumes each server was asked to have, by its name."""
        self._changed: set[str] = set()
        """Servers to which ports or volumes may have come, or been taken from."""
        self._answers_500: list[str] = []
        living = self.living(LivingBeside)
        living.network, living.dice = self.services.network, random.Random(f"{seed}-taken")
        living.changed = self._changed.add
        living.new_volume = self._new_volume
        self._living = living

    def cloud_in(self, root: Path, config: Config) -> CrashProcess:
        """Return the cloud beside the services."""
        return ProcessBeside(self.services, root, config, cells=CELLS, hosts=HOSTS)

    def lives(self) -> Sequence[Sequence[Action]]:
        """Return what may be done to a server now."""
        return LIVES_BESIDE

    async def end(self) -> None:
        """Stop the cloud and the services."""
        await super().end()
        await asyncio.to_thread(self.services.stop)

    async def disturb(self) -> None:
        """Do what is done to a cloud alone, and have one service fail after the other."""
        async with asyncio.TaskGroup() as hands:
            hands.create_task(super().disturb())
            for name in ("neutron", "cinder"):
                hands.create_task(self._fail_often(name, random.Random(f"{self.seed}-{name}")))

    async def _fail_often(self, name: str, dice: random.Random) -> None:
        """Have a service fail in each way once before any comes again; it answers in the end."""
        while not self.over:
            for fault in dice.sample(FAULTS, len(FAULTS)):
                await self.unless_over(dice.uniform(*WELL_SECONDS))
                if self.over:
                    return
                await asyncio.to_thread(
                    self.services.fail, name, fault if isinstance(fault, Mishap) else Mishap.REFUSES
                )
                try:
                    await self.unless_over(dice.uniform(*ILL_SECONDS))
                    if fault is RESTART and name == "cinder":
                        await asyncio.to_thread(self.services.begin_anew)
                finally:
                    await asyncio.to_thread(self.services.heal, name)
                said = fault.name if isinstance(fault, Mishap) else fault
                self._service_faults[f"{name} {said.lower()}"] += 1

    async def body_of(self, kind: str) -> dict[str, object]:
        """Return what asks for a server with ports and volumes, of which each is another."""
        body: Any = await super().body_of(kind)
        server = body["server"]
        server["networks"] = [
            {"uuid": self.services.network},
            {"port": await asyncio.to_thread(self.services.new_port)},
        ]
        disks = await self._disks(server["imageRef"])
        server["block_device_mapping_v2"] = disks
        if disks[0]["destination_type"] == "volume":
            del server["imageRef"]
        self._wanted[server["name"]] = sum(one["destination_type"] == "volume" for one in disks)
        return dict(body)

    async def _disks(self, image: str) -> list[dict[str, Any]]:
        ends = {"delete_on_termination": True}
        root: dict[str, Any] = {"source_type": "image", "uuid": image, "boot_index": 0, **ends}
        backed = self._things.random() < 0.2
        root |= {"destination_type": "volume", "volume_size": 1} if backed else {"destination_type": "local"}
        disks = [root]
        if self._things.random() < 0.7:
            disks.append({"source_type": "volume", "destination_type": "volume", "uuid": await self._new_volume()})
        if self._things.random() < 0.3:
            given = await asyncio.to_thread(self.services.new_volume, given=True)
            disks.append({"source_type": "volume", "destination_type": "volume", "uuid": given, **ends})
        blank = {"source_type": "blank", "destination_type": "volume", "volume_size": 1, **ends}
        return [*disks, *[blank] * self._things.choice((0, 1, 1, 2))]

    async def _new_volume(self) -> str:
        return await asyncio.to_thread(self.services.new_volume)

    def noticed(self, method: str, path: str, status: int | None, text: str) -> None:
        """Count answers that say the cloud is broken: a service that fails is a 503."""
        if status == INTERNAL:
            self._answers_500.append(f"{method} {path}: {text}")

    def _observe(self) -> Findings:
        findings = super()._observe()
        seen = judge.look(self.process.state, self.services)
        beside = judge.differences(seen, self.services.things)
        return msgspec.structs.replace(
            findings,
            leaked=(*findings.leaked, *beside.leaked),
            lost=(*findings.lost, *beside.lost, *self._incomplete(seen)),
            errors_unjustified=tuple(one for one in findings.errors_unjustified if BROKEN not in one),
        )

    def _incomplete(self, seen: judge.SeenBeside) -> list[str]:
        """Say which servers have not all that they were asked to have."""
        whole = [
            row
            for row in seen.rows.values()
            if row.name in self._wanted and row.uuid not in self._changed and row.state != "error"
        ]
        return [
            f"{row.uuid} is {row.state} with {len(row.ports)} ports and {len(row.volumes)} volumes, and was to have "
            f"{PORTS} and {self._wanted[row.name]}"
            for row in whole
            if (len(row.ports), len(row.volumes)) != (PORTS, self._wanted[row.name])
        ]

    async def run(self) -> tuple[LoadReport, Findings, list[str]]:
        """Do it all; return the report, what was found, and what the audit says."""
        report, findings, audit = await super().run()
        told = BesideReport(
            **msgspec.structs.asdict(report) | {"faults": {**report.faults, **self._service_faults}},
            answers_500=len(self._answers_500),
            things={
                "volumes": len(self.services.things.volumes),
                "given": len(self.services.things.given),
                "ports": len(self.services.things.ports),
            },
        )
        return told, findings, [*audit, *self._answers_500]
