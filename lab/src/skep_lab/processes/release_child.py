"""One role of a cloud of processes as a program of its own, `skep serve`: of another release, or of another time."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import httpx

from skep.config.sections import LOOPBACK
from skep.processes.ports import free_ports
from skep.processes.supervisor.child import ChildTask
from skep_lab.processes.child import START_PATIENCE, RoleDied

LOOK_SECONDS = 0.2
ANSWER_SECONDS = 2.0


class ReleaseChild:
    """The process of one order of the plan. Its methods block; none is called by two threads at once."""

    def __init__(
        self,
        order: ChildTask,
        environment: Mapping[str, str],
        logs: Path,
        interpreter: Path,
        *,
        stop_seconds: float,
        what: str = "release",
    ) -> None:
        """`interpreter` is the one into which the program is installed; `what` tells its log from others."""
        self.order = order
        self.log = logs / f"{order.name}-{what}.log"
        self._environment = {**environment, **dict(order.settings)}
        self._interpreter = interpreter
        self._stop_seconds = stop_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._look = ""

    @property
    def running(self) -> bool:
        """Whether there is a process that has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process and wait for nothing. It ends with this one."""
        arguments = ["serve", self.order.role, *self.order.arguments, "--parent", str(os.getpid())]
        if self.order.role == "api":
            self._look = f"http://{LOOPBACK}:{self._environment['SKEP_API__PORT']}/"
        else:
            (port,) = free_ports(LOOPBACK, 1)
            arguments += ["--health-port", str(port)]
            self._look = f"http://{LOOPBACK}:{port}/readyz"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._interpreter), "-m", "skep.cli", *arguments],
                env=self._environment,
                cwd=self.log.parent,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_started(self, seconds: float = START_PATIENCE) -> None:
        """Wait until the role takes work. Raises RoleDied."""
        deadline = time.monotonic() + seconds
        while not self._answers():
            if not self.running or time.monotonic() > deadline:
                raise RoleDied(f"{self.order.name} as a program did not start; the end of its log:\n{self.tail()}")
            time.sleep(LOOK_SECONDS)

    def stop(self) -> None:
        """End the process in good order. Raises RoleDied when it does not, or says that it could not."""
        if self._process is None or not self.running:
            return
        self._process.terminate()
        try:
            status = self._process.wait(self._stop_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise RoleDied(f"{self.order.name} as a program did not stop; its log:\n{self.tail()}") from None
        if status != 0:
            raise RoleDied(f"{self.order.name} as a program stopped with {status}; its log:\n{self.tail()}")

    def kill(self) -> None:
        """End the process at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def tail(self, lines: int = 15) -> str:
        """Return the end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def _answers(self) -> bool:
        """Whether it says that it works. An API says so to load balancers as soon as it serves."""
        try:
            # Nothing here is encrypted, and reading certificates for each look would keep the machine busy.
            answer = httpx.get(self._look, timeout=ANSWER_SECONDS, trust_env=False, verify=False)
        except httpx.TransportError:
            return False
        return answer.status_code == 200
