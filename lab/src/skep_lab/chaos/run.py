"""`make chaos`: servers are built and deleted over HTTP while the cloud is killed again and again and hosts fail.

    python -m skep_lab.chaos --seed 7 --builds 200 --duration 60
    python -m skep_lab.chaos --deployment processes
    python -m skep_lab.chaos --deployment services

All choices come from the seed, which is printed: what is asked, when the cloud dies (at a random moment, at a random
point of a random step, while it starts) and where. How they meet is up to the machine. At the end one JSON object is
printed; the exit status is 1 unless nothing is stuck, leaked, lost, built twice, wrongly ERROR or different in the
audit. What was found is told on standard error, and then the state directory is kept. With `--deployment processes`
each role is a process of its own, and what breaks is said in `skep_lab.chaos.processes`. With `--deployment services`
servers have ports and volumes of services beside the cloud, which fail as well (`skep_lab.chaos.services`).
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from pathlib import Path

import msgspec

from skep.telemetry import logs
from skep_lab.chaos.load import Load, LoadReport
from skep_lab.chaos.one_process import Chaos
from skep_lab.chaos.processes import ProcessChaos
from skep_lab.chaos.services import ChaosBeside
from skep_lab.chaos.upgrade import UpgradeChaos
from skep_lab.releases import installed, released, rolling, upgraded_from, why_not

LAST = "1"
"""As a version: that of the last release."""
ALL_IN_ONE, PROCESSES, SERVICES = "all-in-one", "processes", "services"


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
    elif deployment == SERVICES:
        # The services beside the cloud are in this process.
        logs.configure("error", "json")
        load = ChaosBeside(root, seed, builds, duration)
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
    parser.add_argument(
        "--deployment", choices=(ALL_IN_ONE, PROCESSES, SERVICES), default=ALL_IN_ONE, help="what is broken"
    )
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
