"""A NATS server of one's own: started on a free loopback port, paused, killed and started anew.

async with NatsServer(tmp_path) as server:
    ... server.url ...
    server.kill()
    await server.start()  # the same port, the same store
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from skep.processes.servers.programs import find_program
from skep.processes.servers.waiting import until

START_SECONDS = 20.0
"""A server that does not greet a client within this time after its start has failed."""

STOP_SECONDS = 5.0
"""A server that was asked to stop and has not within this time is killed."""


class NatsServer:
    """One `nats-server` with a folder of its own; used as an async context manager, or by `start` and `stop`."""

    def __init__(
        self,
        folder: Path,
        *,
        jetstream: bool = True,
        max_payload: int | None = None,
        config: str = "",
        prefix: Sequence[str] = (),
        own_session: bool = False,
    ) -> None:
        """Prepare a server that keeps its store, its configuration and its log (`log`) in `folder`.

        `max_payload` is in bytes (NATS's own default is 1 MiB); `config` is further text of its configuration file,
        e.g. accounts or cluster settings; `prefix` is a command that becomes the server, e.g. `setpriv`.
        With `own_session` a Ctrl-C on our terminal does not reach it.
        """
        self.folder = folder
        self.store = folder / "jetstream"
        self.log = folder / "nats-server.log"
        self.port = 0
        self._jetstream = jetstream
        self._max_payload = max_payload
        self._config = config
        self._prefix = tuple(prefix)
        self._own_session = own_session
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients connect; the same after each start."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """The process, or None when none runs."""
        return self._process.pid if self._process else None

    @property
    def running(self) -> bool:
        """Whether the server was started and has not ended, by itself or by anybody."""
        return self._process is not None and self._process.poll() is None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    async def start(self) -> None:
        """Start the server and wait until it greets clients.

        The first start takes a port that is free, every other the same. Raises FileNotFoundError when the program is
        absent, and AssertionError with the end of its log when it does not come up.
        """
        self._process = self._launch()
        try:
            await until(self._greets, "nats-server greets a client", seconds=START_SECONDS)
        except BaseException:
            self.kill()
            raise

    async def restart(self) -> None:
        """Kill the server as a crash does, and start it again on its store."""
        self.kill()
        await self.start()

    def kill(self) -> None:
        """End the server at once (SIGKILL); what the kernel was given of its files stays."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the server in order; nothing happens when none runs."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Halt the server with its connections open (SIGSTOP): it takes bytes and answers nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a halted server go on."""
        self._signal(signal.SIGCONT)

    def wipe(self) -> None:
        """Remove what the server stored; only while none runs."""
        if self._process is not None:
            raise RuntimeError("the server runs")
        if self.store.exists():
            shutil.rmtree(self.store)

    def copy_store(self, to: Path) -> None:
        """Copy what the server stored into a new folder `to`; only while none runs, so that the copy is whole."""
        if self._process is not None:
            raise RuntimeError("the server runs")
        shutil.copytree(self.store, to)

    def restore_store(self, copy: Path) -> None:
        """Put a copy in the place of what the server stored; only while none runs."""
        self.wipe()
        shutil.copytree(copy, self.store)

    def _launch(self) -> subprocess.Popen[bytes]:
        if self._process is not None:
            raise RuntimeError("the server runs already")
        program = find_program("nats-server")
        if program is None:
            raise FileNotFoundError("nats-server")
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [*self._prefix, str(program), "-c", str(self._write_config())]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=self._own_session
            )

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            raise RuntimeError("no server runs")
        self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)  # a halted process takes no SIGTERM
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _write_config(self) -> Path:
        # A port of -1 lets the server choose one that is free, and tell it in a file.
        lines = [f'listen: "127.0.0.1:{self.port or -1}"', f"ports_file_dir: {json.dumps(str(self.folder))}"]
        if self._jetstream:
            lines.append(f"jetstream: {{ store_dir: {json.dumps(str(self.store))} }}")
        if self._max_payload is not None:
            lines.append(f"max_payload: {self._max_payload}")
        path = self.folder / "nats-server.conf"
        path.write_text("\n".join([*lines, self._config, ""]), encoding="utf-8")
        return path

    async def _greets(self) -> bool:
        process = self._process
        if process is None or process.poll() is not None:
            end = self.log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise AssertionError(f"nats-server ended before it served:\n{end}")
        return await asyncio.to_thread(self._greets_now, process.pid)

    def _greets_now(self, pid: int) -> bool:
        if not self.port:
            try:
                ports = json.loads((self.folder / f"nats-server_{pid}.ports").read_bytes())
            except (FileNotFoundError, json.JSONDecodeError):
                return False  # not written yet, or not whole
            self.port = int(ports["nats"][0].rpartition(":")[2])
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as connection:
                connection.settimeout(1.0)
                return connection.recv(5) == b"INFO "
        except OSError:
            return False
