"""Rolling upgrades under load: a cloud that runs another release is brought to this code, back, and forth again.

    python -m skep_lab.chaos --deployment processes --from-release --seed 7 --builds 100 --duration 30

The schemas are upgraded first, as `docs/operations.md` says; then each process is stopped in order (SIGTERM) and one of
the other program takes its place, role by role: who is asked before who asks. Nothing else breaks, so no client may see
an error, 503 with Retry-After included. Messages, rows and host states of either program are read by the other.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from skep.config.sections import Config
from skep_lab.chaos.lives import POWER, Action
from skep_lab.chaos.load import HOSTS, chaos_config
from skep_lab.chaos.processes import ProcessChaos
from skep_lab.processes.child import RoleChild, RoleDied
from skep_lab.processes.release_child import ReleaseChild

ORDER = ("scheduler", "super-conductor", "cell-conductor", "api", "compute")
"""Of an upgrade, and of the way back."""
TURNS = ("forth", "back", "forth")
CALM_SECONDS = 2.0
"""Of load between two turns."""


class UpgradeChaos(ProcessChaos):
    """One run over a cloud of processes that begins with those of another release.

    Users do what both releases can do.
    """

    keeps = False

    def __init__(
        self,
        root: Path,
        seed: int,
        builds: int,
        duration: float,
        config: Config | None = None,
        *,
        release: Path,
        hosts: int = HOSTS,
    ) -> None:
        """`release` is the interpreter that runs the other release."""
        config = config or chaos_config(root, builds)
        going_back = replace(config, compute=replace(config.compute, require_signatures=False))
        super().__init__(root, seed, builds, duration, going_back, hosts=hosts, at_once=0)
        self.processes.release = release

    def lives(self) -> Sequence[Sequence[Action]]:
        """Return what users of either release do."""
        return POWER

    async def disturb(self) -> None:
        """Upgrade everything, go back, and upgrade again; the load goes on meanwhile."""
        try:
            for turn in TURNS:
                await self.unless_over(CALM_SECONDS)
                await self.turn_over(turn)
            await self.unless_over(CALM_SECONDS)
        finally:
            self.rolled = True

    async def turn_over(self, turn: str) -> None:
        """Replace each process by one of the other program, the next one when this one works."""
        cloud = self.processes
        self.rolling = True
        try:
            for role in ORDER:
                sys.stderr.write(f"{turn}: {role}\n")
                for new in cloud.of(role):
                    old = cloud.older[new.order.name]
                    before, after = (old, new) if turn == "forth" else (new, old)
                    await self._replace(before, after)
            await cloud.ready()
        finally:
            self.rolling = False

    async def _replace(self, before: RoleChild | ReleaseChild, after: RoleChild | ReleaseChild) -> None:
        try:
            await asyncio.to_thread(before.stop)
        except RoleDied as error:
            self.restart_errors.append(str(error))
        await self.started(after)
