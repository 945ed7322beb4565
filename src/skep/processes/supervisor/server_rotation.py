"""Other passwords for the servers that a cloud of processes has of its own, while it runs or is stopped.

The passwords are written into their file; the cloud that runs finds them there, has its servers take them, and tells
its processes by files that these follow. NATS takes its user of before until the second step. PostgreSQL knows one
password of a role: the old one is refused at once, and whoever is signed in stays so.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from skep.domain.errors import Misconfigured, Unreachable
from skep.processes.directory import StateDirectory, is_held, step_is_taken
from skep.processes.supervisor.nats_probe import is_accepted
from skep.processes.supervisor.passwords import (
    NATS_USERS,
    SETTLE_SECONDS,
    Passwords,
    ServerPasswords,
    nats_old,
    nats_used,
    replaced,
    sign_in,
    without_old,
)

Step = Literal["use", "drop"]

TAKE_SECONDS = 30.0
"""How long the cloud may take to have its servers take what was written."""
POLL_SECONDS = 0.1


class ServerStep(msgspec.Struct, frozen=True, kw_only=True):
    """What was done."""

    steps: tuple[Step, ...]
    running: bool


class ServerRotation:
    """The passwords of the own servers of one state directory."""

    def __init__(self, directory: StateDirectory) -> None:
        """Raises Misconfigured when it has no servers of its own, or their passwords cannot be read."""
        self.file = directory.servers / "passwords.json"
        if not self.file.exists():
            raise Misconfigured(f"{self.file} is not there: the cloud has no servers of its own")
        self._directory = directory
        self._passwords = ServerPasswords(self.file)
        self._sign_in = directory.servers / "nats.sign-in"

    @property
    def old(self) -> str | None:
        """The user of NATS that is still taken although nothing uses it; None: no rotation is under way."""
        name = nats_old(self._passwords.known)
        return None if name is None else NATS_USERS[name]

    @property
    def users(self) -> tuple[str, ...]:
        """The users that NATS takes, the one that is used first."""
        used = NATS_USERS[nats_used(self._passwords.known)]
        return (used,) if self.old is None else (used, self.old)

    @property
    def next_step(self) -> Step:
        """Which step comes next."""
        return _next_step(self._passwords.known)

    def refusal(self) -> str | None:
        """Return why the next step may not be taken yet; None when it may."""
        if not self._runs():
            return None
        try:
            taken, since = self._sign_in.read_text(encoding="utf-8").strip(), self._sign_in.stat().st_mtime
        except FileNotFoundError:
            return (
                f"{self._sign_in} is missing: the running cloud is of an older release, which cannot change its "
                "passwords; restart it with this release first"
            )
        if taken != sign_in(self._passwords.known):
            return f"the cloud does not use the passwords in {self.file} yet; it keeps trying, see {self._log}"
        left = since + SETTLE_SECONDS - time.time()
        if self.next_step == "drop" and left > 0:
            return f"processes sign in by the new user of NATS for another {math.ceil(left)} s"
        return None

    def advance(self, step: Step | None = None) -> ServerStep:
        """Take the next step, `step`: only if it is this one; of a cloud that does not run, both. Blocks.

        Raises Unreachable when the cloud that runs does not take it, InUse when something else uses the directory or
        another step comes next.
        """
        step = step or self.next_step
        if not self._runs():
            self._directory.open(passed=os.geteuid() == 0)
            try:
                steps: tuple[Step, ...] = ("drop",) if step == "drop" else ("use", "drop")
                for one in steps:
                    self._change(one)
            finally:
                self._directory.close()
            return ServerStep(steps=steps, running=False)
        if step == "use":
            self._change("use")
            expected = sign_in(self._passwords.known)
            self._await(lambda: self._sign_in.read_text(encoding="utf-8").strip() == expected)
            return ServerStep(steps=("use",), running=True)
        old = nats_old(self._passwords.known)
        if old is None:
            raise step_is_taken(step)
        user, password = NATS_USERS[old], self._passwords.of(old)
        self._change("drop")
        port = int((self._directory.servers / "nats.port").read_text(encoding="ascii"))
        self._await(lambda: not is_accepted(port, user, password))
        return ServerStep(steps=("drop",), running=True)

    def _change(self, step: Step) -> None:
        """Write down what follows from a step, unless another command was first. Raises InUse."""

        def changed(known: Passwords) -> Passwords:
            if _next_step(known) != step:
                raise step_is_taken(step)
            return replaced(known) if step == "use" else without_old(known)

        self._passwords.change(changed)

    def _runs(self) -> bool:
        """Tell whether a cloud of processes holds the directory."""
        return is_held(self._directory.root / "supervisor.lock", alone=True)

    def _await(self, taken: Callable[[], bool]) -> None:
        end = time.monotonic() + TAKE_SECONDS
        while True:
            try:
                if taken():
                    return
            except OSError:  # the server starts anew just now
                pass
            if time.monotonic() > end:
                raise Unreachable(
                    f"the cloud does not use the passwords in {self.file} after {TAKE_SECONDS:.0f} s; it keeps "
                    f"trying, see {self._log}"
                )
            time.sleep(POLL_SECONDS)

    @property
    def _log(self) -> Path:
        return self._directory.root / "logs" / "supervisor.log"


def _next_step(known: Passwords) -> Step:
    return "use" if nats_old(known) is None else "drop"
