"""Chaos over processes: any of them dies, halts or has a wrong clock, and so do NATS, PostgreSQL, lines and disks.

    python -m skep_lab.chaos --deployment processes --seed 7 --builds 200 --duration 120

First come faults, several at once, in an order that the seed says (`skep_lab.processes.faults`, and whole stories,
`process_stories`); each kind comes once before any comes twice. Then everything is whole, and all processes are
restarted in order, one by one (SIGTERM), while servers are built and deleted: during that no client may see an error,
503 with Retry-After included.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from skep.config.sections import Config
from skep_lab.chaos.lives import LIVES, POWER, Action
from skep_lab.chaos.load import HOSTS, Load, LoadReport, chaos_config, keeping
from skep_lab.chaos.overlap import Overlap
from skep_lab.chaos.restore import Restored, RestoreStory
from skep_lab.processes.child import RoleChild, RoleDied
from skep_lab.processes.cloud import ProcessCloud
from skep_lab.processes.evacuations import evacuations
from skep_lab.processes.faults import ProcessFaults
from skep_lab.processes.release_child import ReleaseChild
from skep_lab.processes.stories import DATABASES_DISK_BYTES, stories
from skep_lab.witnesses.witness import Findings

CELLS = 2
AT_ONCE = 3
"""Faults under way."""
CALM_SECONDS = (0.2, 2.0)
"""Between the end of a fault and the next one."""
USUAL_START_SECONDS = 2.0
"""A process of a role takes no longer to start where little else runs."""
RESTORE = "backup restored"
"""Among the kinds: its backup is made beside other faults, and it is restored when they are over."""
BACKUP_AT = (0.1, 0.6)
"""Of the duration: when a backup is made."""
AWAY = ("on a host that is down or disabled", "not heard of yet")
"""In the fault of a server: a host that would have done was away. These faults cut off hosts and whole cells."""
FAULTS_SHARE = 0.75
"""Of the duration; the rest is for restarts in order, which take as long as they do."""


class ProcessReport(LoadReport, frozen=True, kw_only=True):
    """What a run over processes came to."""

    answers_500: int
    """Answers that say that something was wrong with Skep itself, at any time."""
    restarts: int
    """In order, under load."""
    restart_errors: int
    """Requests during these restarts that got no answer or one that says the cloud is at fault."""
    died: int
    """Processes that ended by themselves, and what an operator could not do."""
    restored: Restored = Restored()

    @property
    def clean(self) -> bool:
        """Whether nothing went wrong."""
        return super().clean and not (self.answers_500 or self.restart_errors or self.died)


def with_hosts_away(findings: Findings) -> Findings:
    """Return findings without errors of servers whose faults say that a host which would have done was away."""
    wrong = tuple(one for one in findings.errors_unjustified if not any(words in one for words in AWAY))
    return msgspec.structs.replace(findings, errors_unjustified=wrong)


class ProcessChaos(Load):
    """One run over a cloud of processes, which has no networks yet."""

    interfaces = 0

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
        at_once: int = AT_ONCE,
        restores: bool = True,
    ) -> None:
        """`kinds` of faults are done, by default all; `at_once` of them overlap. `restores`: a backup among all."""
        self.processes = ProcessCloud(
            root,
            config or keeping(chaos_config(root, builds)),
            cells=CELLS,
            hosts=hosts,
            disk_bytes=DATABASES_DISK_BYTES if at_once and not kinds else 0,
        )
        super().__init__(self.processes, seed, builds, duration)
        self.faults: Counter[str] = Counter()
        self.restarts = 0
        self._dice = random.Random(f"{seed}-faults")
        self.doer = ProcessFaults(self.processes, self._dice, self.unless_over, self.given_up)
        self._kinds = tuple(kind for kind in kinds if kind != RESTORE)
        self._restores = RESTORE in kinds or (restores and not kinds)
        self.story = RestoreStory(self, self.doer, root / "backup")
        self.restored = Restored()
        self._restored = False
        self._at_once = at_once if self._kinds or not kinds else 0
        self.under_way = Overlap()
        self.rolling, self.rolled = False, False
        """Whether processes are replaced in order now, and whether all were."""
        self._answers_500: list[str] = []
        self.restart_errors: list[str] = []

    async def begin(self) -> None:
        """Start the cloud."""
        await self.processes.start()

    async def end(self) -> None:
        """Stop the cloud; a process that does not stop in time has died, and what was found is told all the same."""
        try:
            await self.processes.stop()
        except RoleDied as error:
            self.doer.died.append(str(error))

    def lives(self) -> Sequence[Sequence[Action]]:
        """Return what users do: beside power actions nothing of which a backup that is still to be restored is silent.

        What hosts keep for a move that its database has forgotten is not found by a recovery yet.
        """
        return LIVES if self._restored or not self._restores else POWER

    def more(self) -> bool:
        """Go on until all processes were restarted, too."""
        return super().more() or not self.rolled

    def _observe(self) -> Findings:
        return with_hosts_away(super()._observe())

    async def disturb(self) -> None:
        """Do faults, heal, and then restart all in order."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.duration * FAULTS_SHARE
        self.doer.kinds |= stories(self.doer)
        if not self._restores:
            self.doer.kinds |= evacuations(self.doer, self.contents.anew)
        order = self._in_rounds(self._kinds or tuple(self.doer.kinds))
        try:
            async with asyncio.TaskGroup() as hands:
                backup = hands.create_task(self._back_up())
                hands.create_task(self.unless_over(end - loop.time()))
                for _ in range(self._at_once):
                    hands.create_task(self._do_faults(order, end))
            _say("healing")
            await self.doer.heal()
            await self.processes.ready()
            if backup.result():
                self.restored = await self.story.restore()
                self._restored = True
                self.faults[RESTORE] += 1
            _say("restarting all in order")
            await self._restart_all()
        finally:
            self.rolled = True

    async def _back_up(self) -> bool:
        """Make a backup at some moment among the faults; false where none is restored, or none could be made."""
        if not self._restores:
            return False
        await self.unless_over(self._dice.uniform(*BACKUP_AT) * self.duration)
        made = await self.story.back_up()
        if not made:
            self.doer.died.append("no backup could be made")
        return made

    def _in_rounds(self, kinds: tuple[str, ...]) -> Iterator[str]:
        """Return kinds without end, each once before any comes again."""
        while True:
            yield from self._dice.sample(kinds, len(kinds))

    async def _do_faults(self, order: Iterator[str], end: float) -> None:
        """Do one fault after the other, beside those who do the same."""
        loop = asyncio.get_running_loop()
        while True:
            await self.unless_over(self._dice.uniform(*CALM_SECONDS))
            if loop.time() >= end:
                return
            kind = next(order)
            _say(f"fault: {kind}")
            with self.under_way:
                done = await self.doer.do(kind)
                self.faults[kind] += done

    async def _restart_all(self) -> None:
        """Restart each process in order, as an upgrade does: the next one when this one works."""
        self.rolling = True
        try:
            for child in self.processes.children.values():
                try:
                    await asyncio.to_thread(child.stop)
                except RoleDied as error:
                    self.restart_errors.append(str(error))
                await self.started(child)
        finally:
            self.rolling = False

    async def started(self, child: RoleChild | ReleaseChild) -> None:
        """Start a process in the place of one that was stopped, and take its time as a measure of the machine.

        Users of a machine on which everything waits would only be told that a database does not answer in time.
        """
        began = time.monotonic()
        child.start()
        await asyncio.to_thread(child.wait_started)
        self.slowness = max(1.0, (time.monotonic() - began) / USUAL_START_SECONDS)
        self.restarts += 1

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
            **(
                msgspec.structs.asdict(report.with_evacuations(self.doer.evacuated))
                | {
                    "faults": dict(self.faults),
                    "faults_at_once": self.under_way.most,
                    "faults_beside": self.under_way.beside,
                }
            ),
            answers_500=len(self._answers_500),
            restarts=self.restarts,
            restart_errors=len(self.restart_errors),
            died=len(self.doer.died),
            restored=self.restored,
        )
        return told, findings, [*audit, *self._answers_500, *self.restart_errors, *self.doer.died]


def _say(what: str) -> None:
    sys.stderr.write(f"{what}\n")
