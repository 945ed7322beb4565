"""`make chaos`: servers are built and deleted over HTTP while the cloud is killed again and again and hosts fail.

    python -m skep_lab.chaos --seed 7 --builds 200 --duration 60
    python -m skep_lab.chaos --deployment processes

All choices come from the seed, which is printed: what is asked, when the cloud dies (at a random moment, at a random
point of a random step, while it starts) and where. How they meet is up to the machine. At the end one JSON object is
printed; the exit status is 1 unless nothing is stuck, leaked, lost, built twice, wrongly ERROR or different in the
audit. What was found is told on standard error, and then the state directory is kept. With `--deployment processes`
each role is a process of its own, and what breaks is said in `skep_lab.chaos.processes`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import msgspec

from skep.config.sections import Config
from skep_lab.chaos.beside import FaultsBeside
from skep_lab.chaos.load import CELLS, HOSTS, Load, LoadReport, chaos_config, keeping
from skep_lab.chaos.overlap import Overlap
from skep_lab.chaos.processes import ProcessChaos
from skep_lab.chaos.upgrade import UpgradeChaos
from skep_lab.crash.evacuating import Operator
from skep_lab.crash.points import ALL_STEPS, drawn
from skep_lab.crash.process import CrashProcess
from skep_lab.releases import installed, released, rolling, upgraded_from, why_not
from skep_lab.witnesses.witness import Findings

PAUSE_SECONDS = (0.2, 3.0)
"""Between a start and what ends it."""
USUAL_START_SECONDS = 3.0
"""A start takes no longer where little else runs. Where it does, what ends it comes as much later: else a busy machine
would only start and end, and nothing that was asked would get anywhere."""
BESIDE = 2
"""Faults under way beside a kill."""
LAST = "1"
"""As a version: that of the last release."""
ALL_IN_ONE, PROCESSES = "all-in-one", "processes"


class Chaos(Load):
    """A whole cloud in one process, which dies again and again, while it halts and its databases are locked."""

    def __init__(self, root: Path, seed: int, builds: int, duration: float, config: Config | None = None) -> None:
        self.process = CrashProcess(root, config or keeping(chaos_config(root, builds)), cells=CELLS, hosts=HOSTS)
        super().__init__(self.process, seed, builds, duration)
        self.faults: Counter[str] = Counter()
        self._under_way = Overlap()
        self._pace = 1.0
        self._operator = Operator(self.sent, random.Random(f"{seed}-operator"), HOSTS, self.contents.anew)

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
                await self.unless_over(dice.uniform(*PAUSE_SECONDS))
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
                    await asyncio.to_thread(self.process.arm, drawn(dice, ALL_STEPS))
                await asyncio.to_thread(self.process.died_by_itself, dice.uniform(*PAUSE_SECONDS) * self._pace)
            else:
                await self.unless_over(dice.uniform(*PAUSE_SECONDS) * self._pace)
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


def chaos(
    deployment: str, *, seed: int, builds: int, duration: float, from_release: str = "", restores: bool = True
) -> LoadReport:
    """Run once in a directory of its own; it is removed when all is well.

    Over processes a backup is restored (`restores`); otherwise servers also move while faults happen.
    `from_release` begins with processes of the release of that version. Raises SystemExit where it is not to be had.
    """
    root = Path(tempfile.mkdtemp(prefix="skep-chaos-"))
    sys.stderr.write(f"seed {seed}\n")
    load: Load
    if from_release:
        release = released(from_release)
        interpreter = installed(release)
        if interpreter is None:
            raise SystemExit(why_not(release))
        sys.stderr.write(f"from {release.version}\n")
        load = UpgradeChaos(root, seed, builds, duration, release=interpreter)
    elif deployment == PROCESSES:
        load = ProcessChaos(root, seed, builds, duration, restores=restores)
    else:
        load = Chaos(root, seed, builds, duration)
    report, findings, audit = asyncio.run(load.run())
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
    parser.add_argument("--deployment", choices=(ALL_IN_ONE, PROCESSES), default=ALL_IN_ONE, help="what is broken")
    parser.add_argument(
        "--from-release",
        metavar="VERSION",
        default="",
        choices=(LAST, *(release.version for release in rolling())),
        help=f"processes: begin with a release, and upgrade under load; {LAST} is the last one",
    )
    parser.add_argument(
        "--no-restore", action="store_true", help="processes: restore no backup; servers move while faults happen"
    )
    chosen = parser.parse_args()
    if chosen.from_release and chosen.deployment != PROCESSES:
        parser.error("--from-release needs --deployment processes")
    version = upgraded_from()[-1].version if chosen.from_release == LAST else chosen.from_release
    seed = random.SystemRandom().randrange(1 << 31) if chosen.seed is None else chosen.seed
    report = chaos(
        chosen.deployment,
        seed=seed,
        builds=chosen.builds,
        duration=chosen.duration,
        from_release=version,
        restores=not chosen.no_restore,
    )
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    return 0 if report.clean else 1


if __name__ == "__main__":
    sys.exit(main())
