"""Chaos over processes: any of them dies, halts or has a wrong clock, and so do NATS, PostgreSQL, lines and disks.

    python -m skep.testing.chaos --deployment processes --seed 7 --builds 200 --duration 120

First come faults, one after the other, in an order that the seed says (`skep.testing.process_faults`); each kind comes
once before any comes twice. Then everything is whole, and all processes are restarted in order, one by one (SIGTERM),
while servers are built and deleted: during that no client may see an error, 503 with Retry-After included.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from pathlib import Path

import msgspec

from skep.config.sections import Config
from skep.testing.chaos_load import HOSTS, Load, Report, chaos_config
from skep.testing.process_child import RoleDied
from skep.testing.process_cloud import ProcessCloud
from skep.testing.process_faults import ProcessFaults
from skep.testing.witness import Findings

CELLS = 2
CALM_SECONDS = (0.2, 2.0)
"""Between two faults."""
FAULTS_SHARE = 0.75
"""Of the duration; the rest is for restarts in order, which take as long as they do."""


class ProcessReport(Report, frozen=True, kw_only=True):
    """What a run over processes came to."""

    faults: dict[str, int]
    answers_500: int
    """Answers that say that something was wrong with Skep itself, at any time."""
    restarts: int
    """In order, under load."""
    restart_errors: int
    """Requests during these restarts that got no answer or one that says the cloud is at fault."""
    died: int
    """Processes that ended by themselves."""

    @property
    def clean(self) -> bool:
        """Whether nothing went wrong."""
        return super().clean and not (self.answers_500 or self.restart_errors or self.died)


class ProcessChaos(Load):
    """One run over a cloud of processes."""

    def __init__(
        self,
        root: Path,
        seed: int,
        builds: int,
        duration: float,
        config: Config | None = None,
        *,
        kinds: tuple[str, ...] = (),
        hosts: int = HOSTS,
    ) -> None:
        """`kinds` of faults are done; by default all."""
        self.processes = ProcessCloud(root, config or chaos_config(root), cells=CELLS, hosts=hosts)
        super().__init__(self.processes, seed, builds, duration)
        self.faults: Counter[str] = Counter()
        self.restarts = 0
        self._dice = random.Random(f"{seed}-faults")
        self.doer = ProcessFaults(self.processes, self._dice, self.unless_over)
        self._kinds = kinds or tuple(self.doer.kinds)
        self.rolling, self.rolled = False, False
        """Whether processes are replaced in order now, and whether all were."""
        self._answers_500: list[str] = []
        self.restart_errors: list[str] = []

    async def begin(self) -> None:
        """Start the cloud; the clocks of hosts are wrong from the beginning, since the logs of guests bear them."""
        await self.processes.start()

    async def end(self) -> None:
        """Stop the cloud."""
        await self.processes.stop()

    def more(self) -> bool:
        """Go on until all processes were restarted, too."""
        return super().more() or not self.rolled

    async def disturb(self) -> None:
        """Do faults, heal, and then restart all in order."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.duration * FAULTS_SHARE
        try:
            while loop.time() < end:
                for kind in self._dice.sample(self._kinds, len(self._kinds)):
                    if loop.time() >= end:
                        break
                    await self.unless_over(self._dice.uniform(*CALM_SECONDS))
                    _say(f"fault: {kind}")
                    self.faults[kind] += 1
                    await self.doer.do(kind)
            _say("healing")
            await self.doer.heal()
            await self.processes.ready()
            _say("restarting all in order")
            await self._restart_all()
        finally:
            self.rolled = True

    async def _restart_all(self) -> None:
        """Restart each process in order, as an upgrade does: the next one when this one works."""
        self.rolling = True
        try:
            for child in self.processes.children.values():
                try:
                    await asyncio.to_thread(child.stop)
                except RoleDied as error:
                    self.restart_errors.append(str(error))
                child.start()
                await asyncio.to_thread(child.wait_started)
                self.restarts += 1
        finally:
            self.rolling = False

    def noticed(self, method: str, path: str, status: int | None, text: str) -> None:
        """Keep what clients saw."""
        line = f"{method} {path}: {status or 'no answer'}: {text[:300]}"
        if status == 500:
            self._answers_500.append(line)
        if self.rolling:
            self.restart_errors.append(line)

    async def run(self) -> tuple[ProcessReport, Findings, list[str]]:
        """Do it all; return the report, what was found, and what the audit says and clients saw."""
        report, findings, audit = await super().run()
        told = ProcessReport(
            **msgspec.structs.asdict(report),
            faults=dict(self.faults),
            answers_500=len(self._answers_500),
            restarts=self.restarts,
            restart_errors=len(self.restart_errors),
            died=len(self.doer.died),
        )
        return told, findings, [*audit, *self._answers_500, *self.restart_errors, *self.doer.died]


def _say(what: str) -> None:
    sys.stderr.write(f"{what}\n")
