"""A cloud in a process of its own, so that what it costs can be told apart from what its clients cost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import httpx

from skep.cli.benchmarks import process_tree
from skep.domain.errors import Misconfigured

Deployment = Literal["all-in-one", "processes"]
_COMMANDS: dict[Deployment, tuple[str, ...]] = {
    "all-in-one": ("serve", "all-in-one"),
    "processes": ("up", "--processes", "--no-first-server"),
}
START_SECONDS = 120.0
STOP_SECONDS = 60.0


class CloudProcess:
    """A cloud as a child, with its cost as the kernel counts it: all its processes together."""

    def __init__(
        self, root: Path, config: str, *, cells: int, hosts: int, deployment: Deployment = "all-in-one"
    ) -> None:
        """Start the child in the directory `root` with the configuration `config` (TOML); `hosts` per cell."""
        self.counted: dict[str, float] = {}
        """CPU seconds between `begin_counting` and `end_counting`, by role and server."""
        self.root = root
        self.state = root / "state"
        self.log = root / "cloud.log"
        self._catalogue: dict[str, str] = {}
        (root / "skep.toml").write_text(config)
        command = [sys.executable, "-m", "skep.cli", *_COMMANDS[deployment], "--config", str(root / "skep.toml")]
        command += ["--cells", str(cells), "--hosts", str(hosts)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
        with self.log.open("wb") as log:
            self._child = subprocess.Popen(  # noqa: S603 - our own interpreter and our own words
                command, cwd=root, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    @property
    def identity_url(self) -> str:
        """Where to get a token; known once the child wrote its clouds.yaml."""
        return str(self._auth()["auth_url"])

    def _auth(self) -> dict[str, str]:
        clouds = json.loads((self.state / "clouds.yaml").read_text())["clouds"]
        auth: dict[str, str] = clouds["skep"]["auth"]
        return auth

    def wait_ready(self, hosts: int) -> tuple[str, str]:
        """Wait until all hosts are up; return the compute API's address and an admin's token.

        Raises Misconfigured with the end of the child's log when it dies or is not ready in time.
        """
        end = time.monotonic() + START_SECONDS
        signed_in: tuple[str, str] | None = None
        with httpx.Client(timeout=10) as client:
            while time.monotonic() < end:
                if self._child.poll() is not None:
                    break
                with contextlib.suppress(httpx.HTTPError, OSError, ValueError, KeyError):
                    compute, token = signed_in = signed_in or self._token(client)
                    if hosts == 0 or self._hosts_up(client, compute.removesuffix("/v2.1"), token) >= hosts:
                        return compute, token
                time.sleep(0.1)
        tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
        raise Misconfigured(f"the cloud was not ready in time; the end of its log:\n{tail}")

    def _token(self, client: httpx.Client) -> tuple[str, str]:
        auth = self._auth()
        body = {
            "auth": {
                "identity": {
                    "methods": ["password"],
                    "password": {
                        "user": {
                            "name": auth["username"],
                            "password": auth["password"],
                            "domain": {"name": auth["user_domain_name"]},
                        }
                    },
                },
                "scope": {"project": {"name": auth["project_name"], "domain": {"name": auth["project_domain_name"]}}},
            }
        }
        answer = client.post(f"{auth['auth_url']}/auth/tokens", json=body)
        answer.raise_for_status()
        catalogue = answer.json()["token"]["catalog"]
        self._catalogue = {
            service["type"]: next(one["url"] for one in service["endpoints"] if one["interface"] == "public")
            for service in catalogue
        }
        return self._catalogue["compute"], answer.headers["X-Subject-Token"]

    @property
    def images_url(self) -> str:
        """Where the image service is; known once `wait_ready` has returned."""
        return self._catalogue["image"]

    @property
    def networks_url(self) -> str:
        """Where the network service is; known as `images_url` is."""
        return self._catalogue["network"]

    @staticmethod
    def _hosts_up(client: httpx.Client, base: str, token: str) -> int:
        answer = client.get(f"{base}/admin/v1/hosts", headers={"X-Auth-Token": token})
        answer.raise_for_status()
        return sum(host["state"] == "up" for host in answer.json()["hosts"])

    def cpu_seconds(self) -> float:
        """Return user and system time of the child and its children so far."""
        return sum(process_tree.cpu_by_kind(self._child.pid).values())

    def cpu_by_kind(self, programs_of: str) -> dict[str, float]:
        """Return it by role and server, the programs that one role started and waited for apart."""
        return process_tree.cpu_by_kind(self._child.pid, programs_of=programs_of)

    def begin_counting(self) -> None:
        """Count CPU from now."""
        self._before = process_tree.cpu_by_kind(self._child.pid)

    def end_counting(self) -> None:
        """Count it until now; `counted` holds what it came to."""
        now = process_tree.cpu_by_kind(self._child.pid)
        self.counted = {kind: spent - self._before.get(kind, 0.0) for kind, spent in now.items()}

    def memory_mib(self, key: str) -> float:
        """Return `VmRSS` (now) or `VmHWM` (the peak) of the child itself."""
        return process_tree.status_mib(self._child.pid, key)

    def peak_rss_by_kind(self) -> dict[str, float]:
        """Return the peak (MiB) of the largest process of each kind."""
        return process_tree.peak_rss_by_kind(self._child.pid)

    def wait_answering(self) -> tuple[str, str]:
        """Wait until the API answers, whatever its hosts do; return its address and an admin's token.

        Raises Misconfigured as `wait_ready` does.
        """
        return self.wait_ready(0)

    def kill(self) -> None:
        """End the child at once, as a crash does."""
        self._child.kill()
        self._child.wait()

    def stop(self) -> None:
        """Stop the child in good order; kill it when it does not."""
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
            try:
                self._child.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()


@contextlib.contextmanager
def children_on_one_core(*, wanted: bool) -> Iterator[None]:
    """Have processes that begin in the block run on one core, as `taskset` would; this process goes on on all."""
    allowed = os.sched_getaffinity(0)
    if wanted:
        os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextlib.contextmanager
def cloud_process(
    root: Path, config: str, *, cells: int, hosts: int, deployment: Deployment = "all-in-one"
) -> Iterator[CloudProcess]:
    """Run a cloud for the length of a block."""
    process = CloudProcess(root, config, cells=cells, hosts=hosts, deployment=deployment)
    try:
        yield process
    finally:
        process.stop()
