"""The other end of `skep_lab.crash.child`: starts that child, arms it, kills it, waits for its end, starts it anew."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from io import FileIO
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import httpx
import msgspec

from skep.config.sections import Config
from skep.contracts.eventually import PATIENCE
from skep_lab.crash.child import ChildOrder, Said, StartOrder, run_child
from skep_lab.crash.forks import PROCESSES, Passed, environment_without_skep
from skep_lab.crash.points import Point
from skep_lab.crash.said import HeardLines
from skep_lab.witnesses import witness, witness_guests
from skep_lab.witnesses.witness import HostSeen, Seen
from skep_lab.witnesses.witness_guests import Life

POLL_SECONDS = 0.05
MICROVERSION = "2.96"


class CloudDied(AssertionError):
    """The child ended although nobody told it to, or did not start."""


class CrashProcess:
    """One cloud over one state directory, through as many lives of its process as a test wants."""

    def __init__(self, root: Path, config: Config, *, cells: int, hosts: int) -> None:
        self.root = root
        self.cells, self.hosts = cells, hosts
        self.state = Path(config.state.directory)
        self.log = root / "cloud.log"
        self.api_url = ""
        self.headers: dict[str, str] = {}
        self.lives = 0
        self._order = root / "order.json"
        self._order.write_bytes(msgspec.json.encode(StartOrder(config=config, cells=cells, hosts=hosts)))
        self._child: BaseProcess | None = None
        self._orders: FileIO | None = None
        self._said: FileIO | None = None
        self._hearing: HeardLines | None = None
        self._http: httpx.Client | None = None
        self._images_url = ""
        self._image = ""

    @property
    def running(self) -> bool:
        """Whether there is a child that has not ended."""
        return self._child is not None and self._child.is_alive()

    @property
    def pid(self) -> int | None:
        """The number of the present child, or of the last one; None before the first."""
        return self._child.pid if self._child is not None else None

    @property
    def image(self) -> str:
        """The id of the image `tiny`."""
        return self._image

    def launch(self) -> None:
        """Start the child and wait for nothing."""
        self._let_go()
        (orders, told), (heard, said) = os.pipe(), os.pipe()
        with self.log.open("ab") as log, os.fdopen(orders, "rb") as theirs, os.fdopen(said, "wb") as answers:
            self._orders, self._said = os.fdopen(told, "wb", buffering=0), os.fdopen(heard, "rb", buffering=0)
            files = [Passed(file.fileno()) for file in (theirs, answers, log)]
            arguments = (str(self._order), environment_without_skep(), *files)
            self._child = PROCESSES.Process(target=run_child, args=arguments, daemon=True)
            self._child.start()
        self._hearing = HeardLines(self._said.fileno())
        self.lives += 1

    def start(self, down: int = 0) -> None:
        """Start the child and wait until all its hosts may get servers, but for so many that are said to be down.

        Raises CloudDied when they do not.
        """
        self.launch()
        deadline = time.monotonic() + PATIENCE
        said = self._heard(deadline)
        if said is None or said.event != "started":
            raise CloudDied(f"the cloud did not start; the end of its log:\n{self.tail()}")
        self.api_url, self._images_url = said.api_url, said.images_url
        self._disconnect()
        # Nothing here is encrypted, so reading certificates for each client would only cost time.
        self._http = httpx.Client(timeout=PATIENCE, trust_env=False, verify=False)
        self._sign_in(said.identity_url)
        while self._hosts_up(down) < self.cells * self.hosts - down:
            if time.monotonic() > deadline or not self.running:
                raise CloudDied(f"not all hosts came up; the end of the log:\n{self.tail()}")
            time.sleep(POLL_SECONDS)

    def arm(self, point: Point) -> None:
        """Have the child end itself at `point`; returns once it knows."""
        self._tell(ChildOrder(point=point), ("armed", "dies"))

    def lose(self, host: str) -> None:
        """Have a host of the child lose its power, and be silent until it is back; returns once it is so."""
        self._tell(ChildOrder(lost=host), ("lost",))

    def back(self, host: str) -> None:
        """Have a host start that was lost; a host that runs goes on."""
        self._tell(ChildOrder(back=host), ("back",))

    def calls(self) -> tuple[str, ...]:
        """Return what the driver `libvirt` of the child has called since this was asked before."""
        return self._tell(ChildOrder(calls=True), ("calls",)).calls

    def _tell(self, told: ChildOrder, answers: tuple[str, ...]) -> Said:
        assert self._orders is not None
        self._orders.write(msgspec.json.encode(told) + b"\n")
        said = self._heard(time.monotonic() + PATIENCE)
        if said is None or said.event not in answers:
            raise CloudDied(f"the cloud does not obey; the end of its log:\n{self.tail()}")
        return said

    def died_by_itself(self, seconds: float) -> bool:
        """Wait for the end of the child; False when it still runs after `seconds`.

        Raises CloudDied when it ended otherwise than by SIGKILL.
        """
        assert self._child is not None
        self._child.join(seconds)
        if self.running:
            return False
        self._see_killed(self._child)
        return True

    def halt(self) -> Callable[[], None] | None:
        """Halt the child with all that it holds; return what lets that child go on. None: none runs."""
        child = self._child
        if child is None or child.pid is None or not child.is_alive():
            return None
        _signal(child, signal.SIGSTOP)
        return partial(_signal, child, signal.SIGCONT)

    def kill(self) -> None:
        """End the child as a power failure does. Raises CloudDied when it had ended otherwise than by SIGKILL."""
        if self._child is not None:
            self._child.kill()
            self._child.join()
            self._see_killed(self._child)

    def stop(self) -> None:
        """End the child in good order; kill it when it does not."""
        self._disconnect()
        if self._child is None:
            return
        if self._orders is not None:
            self._orders.close()
        self._child.join(PATIENCE)
        if self.running:
            self._child.kill()
            self._child.join()
        self._let_go()

    def ask(self, method: str, path: str, body: object = None) -> httpx.Response:
        """Send one request to the compute API (`/servers`) or the admin API (`/admin/v1/...`)."""
        base = self.api_url.removesuffix("/v2.1") if path.startswith("/admin/") else self.api_url
        return self._client.request(method, f"{base}{path}", json=body, headers=self.headers)

    def answer(self, path: str) -> Any:
        """Return what a GET answers. Raises httpx.HTTPStatusError unless it answers well."""
        return self.ask("GET", path).raise_for_status().json()

    def images(self) -> list[dict[str, Any]]:
        """Return the images that were made of servers."""
        found = self._client.get(self._images, headers=self.headers).raise_for_status().json()["images"]
        return [one for one in found if one["id"] != self._image]

    def image_content(self) -> bytes:
        """Return the bytes of the image `tiny`."""
        return self._client.get(f"{self._images}/{self._image}/file", headers=self.headers).raise_for_status().content

    def replace_image(self, content: bytes) -> None:
        """Have a disk, as qcow2, in place of the image `tiny`."""
        self.remove_image(self._image)
        described = {"name": "tiny", "disk_format": "qcow2", "container_format": "bare", "visibility": "public"}
        made = self._client.post(self._images, headers=self.headers, json=described).raise_for_status().json()
        self._image = made["id"]
        headers = {**self.headers, "Content-Type": "application/octet-stream"}
        self._client.put(f"{self._images}/{self._image}/file", headers=headers, content=content).raise_for_status()

    def remove_image(self, image_id: str) -> None:
        """Delete an image."""
        self._client.delete(f"{self._images}/{image_id}", headers=self.headers).raise_for_status()

    @property
    def _images(self) -> str:
        return f"{self._images_url.removesuffix('/v2')}/v2/images"

    @property
    def _client(self) -> httpx.Client:
        assert self._http is not None, "the cloud was never started"
        return self._http

    def look(self, statuses: dict[str, str], hosts: dict[str, HostSeen]) -> Seen:
        """Read the files of the state directory, to go with what users and admins see."""
        return witness.look(self.state, statuses, hosts)

    def guests(self) -> list[Life]:
        """Return all guests that the hosts ever had."""
        return witness_guests.lives(self.state)

    def tail(self) -> str:
        """Return the end of the child's log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])

    def _sign_in(self, identity_url: str) -> None:
        token = self.token(identity_url)
        self.headers = {"X-Auth-Token": token, "OpenStack-API-Version": f"compute {MICROVERSION}"}
        if not self._image:
            found = self._client.get(f"{self._images}?name=tiny", headers=self.headers).raise_for_status()
            self._image = found.json()["images"][0]["id"]

    def token(self, identity_url: str) -> str:
        """Sign in as the admin of the cloud; return the token."""
        auth = json.loads((self.state / "clouds.yaml").read_text())["clouds"]["skep"]["auth"]
        domain = {"name": "Default"}
        proof = {"user": {"name": auth["username"], "password": auth["password"], "domain": domain}}
        scope = {"project": {"name": auth["project_name"], "domain": domain}}
        body = {"auth": {"identity": {"methods": ["password"], "password": proof}, "scope": scope}}
        given = self._client.post(f"{identity_url}/auth/tokens", json=body)
        given.raise_for_status()
        return str(given.headers["X-Subject-Token"])

    def _hosts_up(self, down: int) -> int:
        """Return how many hosts are up; where some are said to be down, the cloud may warn of their cell."""
        ready = self._client.get(f"{self.api_url.removesuffix('/v2.1')}/readyz")
        if ready.status_code != 200 or (ready.json()["warnings"] and not down):
            return 0
        return sum(host["state"] == "up" for host in self.answer("/admin/v1/hosts")["hosts"])

    def _heard(self, deadline: float) -> Said | None:
        """Return the next line of the child; None when it ends or is silent."""
        assert self._hearing is not None
        return self._hearing.next(deadline)

    def _see_killed(self, ended: BaseProcess) -> None:
        """Let go of a child, and see that it did not fail."""
        self._let_go()
        if ended.exitcode != -signal.SIGKILL:
            raise CloudDied(f"the cloud ended with {ended.exitcode}; the end of its log:\n{self.tail()}")

    def _let_go(self) -> None:
        for pipe in (self._orders, self._said):
            if pipe is not None:
                pipe.close()
        self._orders = self._said = None

    def _disconnect(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None


def _signal(child: BaseProcess, number: signal.Signals) -> None:
    """Send a signal to a child that may have ended."""
    if child.pid is not None and child.is_alive():
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, number)
