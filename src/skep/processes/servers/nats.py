"""A NATS server of one's own: started on a free loopback port, paused, killed and started anew.

async with NatsServer(tmp_path) as server:
    ... server.url ...
    server.kill()
    await server.start()  # the same port, the same store
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from skep.processes.ports import free_port
from skep.processes.servers.child import ChildServer


class NatsServer(ChildServer):
    """One `nats-server` with a folder of its own."""

    program = "nats-server"

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
        super().__init__()
        self.folder = folder
        self.store = folder / "jetstream"
        self.log = folder / "nats-server.log"
        self._jetstream = jetstream
        self._max_payload = max_payload
        self._config = config
        self._prefix = tuple(prefix)
        self._own_session = own_session

    @property
    def url(self) -> str:
        """Where clients connect; the same after each start."""
        return f"nats://127.0.0.1:{self.port}"

    def wipe(self) -> None:
        """Remove what the server stored; only while none runs."""
        if self._process is not None:
            raise RuntimeError("the server runs")
        if self.store.exists():
            shutil.rmtree(self.store)

    def reconfigure(self, config: str) -> None:
        """Take other text of its configuration file from now on; a server that runs reads it soon (SIGHUP).

        Clients that the new text lets in stay connected.
        """
        self._config = config
        if self.running:
            self._write_config()
            self._signal(signal.SIGHUP)

    def _launch(self, program: Path) -> subprocess.Popen[bytes]:
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [*self._prefix, str(program), "-c", str(self._write_config())]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=self._own_session
            )

    def _write_config(self) -> Path:
        # Where it listens after all, further text may have a say: the server tells it in a file.
        lines = [f'listen: "127.0.0.1:{self.port or free_port()}"', f"ports_file_dir: {json.dumps(str(self.folder))}"]
        if self._jetstream:
            lines.append(f"jetstream: {{ store_dir: {json.dumps(str(self.store))} }}")
        if self._max_payload is not None:
            lines.append(f"max_payload: {self._max_payload}")
        path = self.folder / "nats-server.conf"
        path.write_text("\n".join([*lines, self._config, ""]), encoding="utf-8")
        return path

    def _last_words(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-2000:]

    def _answers(self, pid: int) -> bool:
        """Tell whether the server greets a client."""
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
