"""A cloud of processes as a walk has it, in which the agent of one host dies, and everything else goes on."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import httpx

from skep.config.sections import Config
from skep.contracts.eventually import PATIENCE
from skep.processes.supervisor.plan import ProcessNumbers
from skep_lab.crash.points import Point
from skep_lab.crash.process import POLL_SECONDS, CloudDied, CrashProcess
from skep_lab.processes.child import RoleChild
from skep_lab.processes.cloud import HostSettings, ProcessCloud

T = TypeVar("T")

NUMBERS = ProcessNumbers(scheduler=1)


class DyingAgent(CrashProcess):
    """A cloud with a process of each role. What is armed, and dies, is the agent of the host `victim`."""

    def __init__(self, root: Path, config: Config, *, cells: int, hosts: int, host_settings: HostSettings) -> None:
        super().__init__(root, config, cells=cells, hosts=hosts)
        self.cloud = ProcessCloud(root, config, cells=cells, hosts=hosts, numbers=NUMBERS, host_settings=host_settings)
        self.victim = ""
        self._loop = asyncio.new_event_loop()
        # Links are served all the time.
        self._turning = threading.Thread(target=self._loop.run_forever, name="cloud of processes", daemon=True)

    @property
    def _agent(self) -> RoleChild:
        return self.cloud.children[f"compute-{self.victim}"]

    @property
    def running(self) -> bool:
        """Whether the agent has not ended."""
        return self._agent.running

    def start(self, down: int = 0) -> None:
        """Start the cloud, or the agent that died, and wait until all hosts may get servers. Raises CloudDied."""
        if not self.lives:
            self._begin()
        else:
            self._agent.kill()
            self._agent.start()
            self._agent.wait_started()
        self.lives += 1
        deadline = time.monotonic() + PATIENCE
        while self._hosts_up(down) < self.cells * self.hosts - down:
            if time.monotonic() > deadline:
                raise CloudDied(f"not all hosts came up; the end of the log:\n{self.tail()}")
            time.sleep(POLL_SECONDS)

    def _begin(self) -> None:
        self._turning.start()
        self._told(self.cloud.start())
        client = self.cloud.client
        self.api_url, self._images_url = client.api_urls[0], client.images_url
        self._http = httpx.Client(timeout=PATIENCE, trust_env=False, verify=False)
        self._sign_in(client.identity_url)

    def arm(self, point: Point) -> None:
        """Have the agent end itself at `point`; returns once it knows."""
        self._agent.arm(point)

    def calls(self) -> tuple[str, ...]:
        """Return what the driver of the agent has called since this was asked before."""
        return self._agent.calls()

    def died_by_itself(self, seconds: float) -> bool:
        """Wait for the end of the agent; False when it still runs after `seconds`. Raises CloudDied."""
        end = time.monotonic() + seconds
        while self._agent.running:
            if time.monotonic() > end:
                return False
            time.sleep(POLL_SECONDS)
        if self._agent.status != -signal.SIGKILL:
            raise CloudDied(f"the agent ended with {self._agent.status}; the end of its log:\n{self.tail()}")
        return True

    def kill(self) -> None:
        """End all agents at once."""
        for child in self.cloud.of("compute"):
            child.kill()

    def stop(self) -> None:
        """Stop all processes in order."""
        self._disconnect()
        if self._turning.is_alive():
            try:
                self._told(self.cloud.stop())
            finally:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._turning.join()
        self._loop.close()

    def tail(self) -> str:
        """Return the ends of the logs of all agents, and of the conductors of cells."""
        children = (*self.cloud.of("compute"), *self.cloud.of("cell-conductor"))
        return "\n".join(f"{child.order.name}:\n{child.tail()}" for child in children)

    def _told(self, asked: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(asked, self._loop).result()
