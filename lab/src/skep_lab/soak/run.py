"""`make soak`: a cloud builds and deletes for minutes while its schedulers and the backend they share are killed.

    python -m skep_lab.soak --seed 7 --seconds 600

Each backend has its turn: schedulers in processes of their own, messages over NATS. At random a scheduler is killed or
paused, the backend restarted or wiped, NATS restarted; the rest of the cloud runs on. It ends as `make chaos` does:
one JSON object for each backend, and status 1 unless nothing is stuck, leaked, lost, built twice, wrongly ERROR or
different in the audit.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from skep.config.scheduler import SchedulerSettings
from skep.config.sections import Config, TransportSettings
from skep.contracts.eventually import PATIENCE, eventually
from skep_lab.chaos.load import LoadReport, chaos_config
from skep_lab.chaos.one_process import Chaos
from skep_lab.crash.walk import RECOVERY_SECONDS
from skep_lab.soak.servers import BACKENDS, SoakServers
from skep_lab.witnesses.witness import Findings

SCHEDULERS = 3
MEMORY = "memory"
BUILDS_PER_SECOND = 2.0
CALM_SECONDS = (1.0, 5.0)
"""Between two faults."""
PAUSED_SECONDS = (0.5, 12.0)


class SchedulerChild:
    """One `skep serve scheduler`."""

    def __init__(self, root: Path, config: Path, name: str) -> None:
        self.log = root / f"{name}.log"
        self._command = [sys.executable, "-m", "skep.cli", "serve", "scheduler", "--config", str(config)]
        self._root = root
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; it joins when it is ready."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                self._command, cwd=self._root, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._child is not None
        self._child.send_signal(number)

    def kill(self) -> None:
        """End it at once."""
        assert self._child is not None
        self._child.kill()
        self._child.wait()

    def stop(self) -> None:
        """End it in good order; kill it when it does not."""
        if self._child is None or self._child.poll() is not None:
            return
        self._child.send_signal(signal.SIGCONT)
        self._child.terminate()
        try:
            self._child.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()


class Soak(Chaos):
    """One backend's turn."""

    def __init__(self, root: Path, seed: int, seconds: float, servers: SoakServers) -> None:
        """Take servers that have started."""
        builds = round(seconds * BUILDS_PER_SECOND)
        config = _config(root, servers, builds)
        super().__init__(root, seed, builds, seconds, config)
        path = root / "scheduler.toml"
        path.write_text(_scheduler_toml(config))
        self.recovered_s = 0.0
        """The longest that a server took which was asked for as soon as a server beneath was back."""
        self._beneath = servers
        self._schedulers = [SchedulerChild(root, path, f"scheduler{number}") for number in range(SCHEDULERS)]

    async def run(self) -> tuple[LoadReport, Findings, list[str]]:
        """Start the schedulers, then do as chaos does."""
        for scheduler in self._schedulers:
            scheduler.start()
        try:
            return await super().run()
        finally:
            for scheduler in self._schedulers:
                await asyncio.to_thread(scheduler.stop)

    async def disturb(self) -> None:
        """Do one fault after another until the load is over; leave all that it takes running."""
        dice = random.Random(f"{self.seed}-faults")
        kinds = {"kill": self._kill_scheduler, "pause": self._pause_scheduler}
        while not self.over:
            await self.unless_over(dice.uniform(*CALM_SECONDS))
            kind = dice.choice(("kill", "kill", "pause", *self._beneath.faults))
            self.faults[kind] += 1
            if kind in kinds:
                await kinds[kind](dice)
            else:
                await self._beneath.faults[kind]()
                self.recovered_s = max(self.recovered_s, await self._build_one())

    async def _build_one(self) -> float:
        """Return how many seconds a server takes that is asked for now, from the request to ACTIVE."""
        began = time.monotonic()
        uuid = await self.create_one("probe")

        async def active() -> bool:
            answer = await asyncio.to_thread(self.process.answer, f"/servers/{uuid}")
            return bool(answer["server"]["status"] == "ACTIVE")

        await eventually(active, f"server {uuid} is ACTIVE", seconds=RECOVERY_SECONDS)
        return time.monotonic() - began

    async def _kill_scheduler(self, dice: random.Random) -> None:
        scheduler = dice.choice(self._schedulers)
        await asyncio.to_thread(scheduler.kill)
        await self.unless_over(dice.uniform(0, 3))
        scheduler.start()
        self.kills += 1

    async def _pause_scheduler(self, dice: random.Random) -> None:
        scheduler = dice.choice(self._schedulers)
        scheduler.signal(signal.SIGSTOP)
        await self.unless_over(dice.uniform(*PAUSED_SECONDS))
        scheduler.signal(signal.SIGCONT)


def _config(root: Path, servers: SoakServers, builds: int) -> Config:
    return msgspec.structs.replace(
        chaos_config(root, builds),
        transport=TransportSettings(kind="nats", url=servers.nats.url),
        synchronizer=servers.settings,
        scheduler=SchedulerSettings(embedded=False),
    )


def _scheduler_toml(config: Config) -> str:
    """Return what a scheduler needs: no databases, no keys."""
    states = config.synchronizer
    lines = ["[transport]", 'kind = "nats"', f'url = "{config.transport.url}"', "[synchronizer]"]
    lines += [f'backend = "{states.backend}"', f'url = "{states.url}"', f"expected_hosts = {states.expected_hosts}"]
    return "\n".join([*lines, ""])


async def _turn(root: Path, backend: str, seed: int, seconds: float) -> tuple[dict[str, Any], LoadReport]:
    servers = SoakServers(root, backend)
    await servers.start()
    try:
        soak = Soak(root, seed, seconds, servers)
        report, findings, audit = await soak.run()
    finally:
        await servers.stop()
    if not report.clean:
        sys.stderr.write("\n".join([findings.text(), *(f"audit: {one}" for one in audit), ""]))
    return {
        "backend": backend,
        **msgspec.to_builtins(report),
        "faults": soak.faults,
        "recovered_s": round(soak.recovered_s, 1),
    }, report


async def _memory_turn(root: Path, seed: int, seconds: float) -> tuple[dict[str, Any], LoadReport]:
    """Kill the whole process: its memory is the backend, and every start is another epoch."""
    report, findings, audit = await Chaos(root, seed, round(seconds * BUILDS_PER_SECOND), seconds).run()
    if not report.clean:
        sys.stderr.write("\n".join([findings.text(), *(f"audit: {one}" for one in audit), ""]))
    return {"backend": MEMORY, **msgspec.to_builtins(report)}, report


def soak(backend: str, *, seed: int, seconds: float) -> bool:
    """Run one backend's turn and print its report; return whether all is well."""
    root = Path(tempfile.mkdtemp(prefix="skep-soak-"))
    began = time.monotonic()
    turn = _memory_turn(root, seed, seconds) if backend == MEMORY else _turn(root, backend, seed, seconds)
    told, report = asyncio.run(turn)
    told["seconds"] = round(time.monotonic() - began)
    sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
    sys.stdout.flush()
    if report.clean:
        shutil.rmtree(root, ignore_errors=True)
    else:
        sys.stderr.write(f"kept: {root}\n")
    return report.clean


def main() -> int:
    """Read the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="soak", description="Schedulers and backends die while servers are built.")
    parser.add_argument("--seed", type=int, default=None, help="where all choices come from; default: a new one")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long in all")
    parser.add_argument(
        "--backend", choices=(MEMORY, *BACKENDS), action="append", help="only this one; may be given again"
    )
    chosen = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if chosen.seed is None else chosen.seed
    sys.stderr.write(f"seed {seed}\n")
    backends = chosen.backend or (MEMORY, *BACKENDS)
    results = [soak(backend, seed=seed, seconds=chosen.seconds / len(backends)) for backend in backends]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
