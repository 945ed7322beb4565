"""One service of others whose API is a WSGI application."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx

from skep.processes.ports import free_port
from skep.processes.servers.child import ChildServer
from skep_lab.neighbours.programs import programs

SERVE = """
import importlib, sys, waitress
module, port, threads, *options = sys.argv[1:]
sys.argv[1:] = options  # the services read options of their own
waitress.serve(importlib.import_module(module).application, host="127.0.0.1", port=int(port), threads=int(threads))
"""


class WsgiService(ChildServer):
    """One service of the neighbours under waitress."""

    start_seconds = 480.0

    def __init__(
        self,
        group: str,
        module: str,
        folder: Path,
        environment: Mapping[str, str],
        threads: int = 4,
        options: Sequence[str] = (),
    ) -> None:
        """Prepare the application of `module`, which is installed for a group; its log is in `folder`.

        `options` are the application's own.
        """
        super().__init__()
        self.program = str(programs(group) / "python")
        self.port = free_port()
        self._module = module
        self._threads = threads
        self._options = options
        self._log = folder / f"{module.partition('.')[0]}.log"
        self._environment = {**os.environ, **environment}

    @property
    def url(self) -> str:
        """Its address, without a version."""
        return f"http://127.0.0.1:{self.port}"

    def _launch(self, program: Path) -> subprocess.Popen[bytes]:
        command = [str(program), "-c", SERVE, self._module, str(self.port), str(self._threads), *self._options]
        with self._log.open("ab") as log:
            return subprocess.Popen(command, env=self._environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def _answers(self, pid: int) -> bool:  # noqa: ARG002 - its port is its own
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(self.url, timeout=1.0, trust_env=False, verify=False).status_code < 500
        return False

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace")[-2000:] if self._log.exists() else ""
