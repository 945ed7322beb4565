"""A real Cinder on loopback, whose volumes have no content: `scripts/bootstrap cinder` installs it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import httpx

from skep.processes.servers.child import ChildServer
from skep_lab.neighbours.identity_and_images import post
from skep_lab.neighbours.programs import account, programs, run, tokens
from skep_lab.neighbours.wsgi import WsgiService

GROUP = "cinder"
PROGRAMS = programs(GROUP)
PART = str(PROGRAMS / "cinder-manage")
DRIVERS = Path(__file__).parent / "inside"
THREADS = 8
MULTIATTACH = "shelf-multiattach"
TYPES: dict[str, dict[str, str]] = {"shelf": {}, MULTIATTACH: {"multiattach": "<is> True"}}
READY = "Starting cinder-"


class CinderWorker(ChildServer):
    """Cinder's scheduler, or what acts on its volumes; both hear of their work from a broker."""

    start_seconds = 480.0

    def __init__(self, name: str, folder: Path) -> None:
        """Prepare `cinder-scheduler` or `cinder-volume`."""
        super().__init__()
        self.program = str(PROGRAMS / name)
        self._folder = folder
        self._log = folder / f"{name}.log"

    def _launch(self, program: Path) -> subprocess.Popen[bytes]:
        command = [str(program), "--config-file", str(self._folder / "cinder.conf")]
        environment = {**os.environ, "PYTHONPATH": str(DRIVERS)}
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command,
                env=environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def _end(self, number: signal.Signals) -> None:
        pid = self.pid
        super()._end(number)
        if pid is not None:
            # What acts on volumes has a child for each backend.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def _answers(self, pid: int) -> bool:  # noqa: ARG002 - nothing of it listens; its log tells
        return self._log.exists() and READY in self._log.read_text(errors="replace")

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace")[-2000:] if self._log.exists() else ""


class RealCinder:
    """Cinder's API, its scheduler, and a backend that keeps rows only."""

    def __init__(self, folder: Path, auth_url: str, images_url: str, database: str, broker: str) -> None:
        """Take a folder for configuration and logs, the URL of an empty PostgreSQL database and of a RabbitMQ."""
        self._folder = folder
        self._auth_url = auth_url
        self._images_url = images_url
        self._database = database
        self._broker = broker
        options = ("--config-file", str(folder / "cinder.conf"))
        self.service = WsgiService(GROUP, "cinder.wsgi.api", folder, {}, THREADS, options)
        self.workers = [CinderWorker(name, folder) for name in ("cinder-scheduler", "cinder-volume")]

    @property
    def url(self) -> str:
        """Address of its v3 API."""
        return f"{self.service.url}/v3"

    def prepare(self) -> None:
        """Write the configuration and make the tables; blocks for a while."""
        (self._folder / "state/conversion").mkdir(mode=0o700, parents=True)
        (self._folder / "cinder.conf").write_text(self._configuration())
        run(PROGRAMS / "cinder-manage", "--config-file", str(self._folder / "cinder.conf"), "db", "sync")

    async def start(self) -> None:
        """Start its three processes."""
        async with asyncio.TaskGroup() as starting:
            for server in (self.service, *self.workers):
                starting.create_task(server.start())

    def stop(self) -> None:
        """End them."""
        for server in (self.service, *self.workers):
            server.stop()

    async def populate(self, token: str) -> None:
        """Make the types of volumes."""
        headers = {"X-Auth-Token": token}
        async with httpx.AsyncClient(base_url=self.url, timeout=60.0, headers=headers, trust_env=False) as client:
            for name, specs in TYPES.items():
                known: dict[str, Any] = {"name": name, "extra_specs": {"volume_backend_name": "shelf", **specs}}
                await post(client, "/types", {"volume_type": known})

    def _configuration(self) -> str:
        etc = PROGRAMS.parent / "etc/cinder"
        return f"""
[DEFAULT]
use_stderr = true
transport_url = {self._broker}
auth_strategy = keystone
state_path = {self._folder}/state
image_conversion_dir = {self._folder}/state/conversion
api_paste_config = {etc}/api-paste.ini
resource_query_filters_file = {etc}/resource_filters.json
host = shelves
my_ip = 127.0.0.1
glance_api_servers = {self._images_url}
enabled_backends = shelf
default_volume_type = shelf
quota_volumes = 1000
quota_gigabytes = 100000
quota_snapshots = 1000
osapi_volume_workers = 1
[shelf]
volume_driver = skep_shelf.SkepShelf
volume_backend_name = shelf
volume_clear = none
[coordination]
backend_url = file://{self._folder}/state
[database]
connection = {self._database}
[oslo_messaging_notifications]
driver = noop
[oslo_concurrency]
lock_path = {self._folder}/locks
{tokens(self._auth_url, "cinder")}
{account("nova", self._auth_url, "cinder")}
{account("service_user", self._auth_url, "cinder")}
send_service_user_token = true
"""
