"""Chaos in a whole cloud of one process, which dies again and again."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import msgspec

from skep.config.sections import Config
from skep_lab.chaos.beside import FaultsBeside
from skep_lab.chaos.load import CELLS, HOSTS, Load, LoadReport, chaos_config, keeping
from skep_lab.chaos.overlap import Overlap
from skep_lab.crash.evacuating import Operator
from skep_lab.crash.points import ALL_STEPS, drawn
from skep_lab.crash.process import CrashProcess
from skep_lab.witnesses.witness import Findings

PAUSE_SECONDS = (0.2, 3.0)
"""Between a start and what ends it."""
USUAL_START_SECONDS = 3.0
"""A start takes no longer where little else runs. Where it does, what ends it comes as much later: else a busy machine
would only start and end, and nothing that was asked would get anywhere."""
BESIDE = 2
"""Faults under way beside a kill."""


class Chaos(Load):
    """A whole cloud in one process, which dies again and again, while it halts and its databases are locked."""

    steps: Collection[str] = ALL_STEPS
    """At which the cloud dies."""
    pause_seconds = PAUSE_SECONDS

    def __init__(self, root: Path, seed: int, builds: int, duration: float, config: Config | None = None) -> None:
        self.process = self.cloud_in(root, config or keeping(chaos_config(root, builds)))
        super().__init__(self.process, seed, builds, duration)
        self.faults: Counter[str] = Counter()
        self._under_way = Overlap()
        self._pace = 1.0
        self._operator = Operator(self.sent, random.Random(f"{seed}-operator"), HOSTS, self.contents.anew)

    def cloud_in(self, root: Path, config: Config) -> CrashProcess:
        """Return the cloud, which has not started."""
        return CrashProcess(root, config, cells=CELLS, hosts=HOSTS)

    async def begin(self) -> None:
        """Start the cloud."""
        await asyncio.to_thread(self.process.start)

    async def end(self) -> None:
        """Stop the cloud."""
        await asyncio.to_thread(self.process.stop)

    async def disturb(self) -> None:
        """Kill and start anew until the load is over, with other faults beside; the last life is left alone."""
        async with asyncio.TaskGroup() as hands:
            hands.create_task(self._kill_often())
            for number in range(BESIDE):
                hands.create_task(self._befall(random.Random(f"{self.seed}-beside-{number}")))

    async def _befall(self, dice: random.Random) -> None:
        """Do one fault after the other beside the kills, each kind once before any comes again."""
        beside = FaultsBeside(self.process, dice, self.unless_over, self._operator)
        while not self.over:
            for kind in dice.sample(sorted(beside.kinds), len(beside.kinds)):
                await self.unless_over(dice.uniform(*self.pause_seconds))
                if self.over:
                    return
                with self._under_way:
                    self.faults[kind] += await beside.do(kind)

    async def run(self) -> tuple[LoadReport, Findings, list[str]]:
        """Do it all; return the report, what was found, and what the audit says."""
        report, findings, audit = await super().run()
        told = msgspec.structs.replace(
            report.with_evacuations(self._operator.evacuated),
            faults=dict(self.faults),
            faults_at_once=self._under_way.most,
            faults_beside=self._under_way.beside,
        )
        return told, findings, audit

    async def _kill_often(self) -> None:
        dice = random.Random(f"{self.seed}-kills")
        while not self.over:
            how = dice.choice(("moment", "point", "point", "start"))
            if how == "point":
                async with self._operator.turn:
                    await asyncio.to_thread(self.process.arm, drawn(dice, self.steps))
                await asyncio.to_thread(self.process.died_by_itself, dice.uniform(*self.pause_seconds) * self._pace)
            else:
                await self.unless_over(dice.uniform(*self.pause_seconds) * self._pace)
            with self._under_way:
                async with self._operator.turn:
                    await self._kill(dice, while_it_starts=how == "start")

    async def _kill(self, dice: random.Random, *, while_it_starts: bool) -> None:
        self.up.clear()
        await asyncio.to_thread(self.process.kill)
        self.kills += 1
        if while_it_starts:
            await asyncio.to_thread(self.process.launch)
            await self.unless_over(dice.uniform(0.3, 2.0))
            await asyncio.to_thread(self.process.kill)
            self.kills += 1
        began = time.monotonic()
        await asyncio.to_thread(self.process.start, len(self._operator.down))
        self._pace = max(1.0, (time.monotonic() - began) / USUAL_START_SECONDS)
        self.up.set()
