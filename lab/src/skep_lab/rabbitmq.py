"""A RabbitMQ of one's own on free loopback ports: paused, killed and started anew, with an `epmd` of its own.

async with RabbitServer(tmp_path / "rabbitmq") as server:
    ... server.url ...
    server.kill()
    await server.start()  # the same port, the same users
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

from skep.processes.ports import free_port
from skep.processes.servers.child import ChildServer
from skep.processes.servers.programs import find_program

PROGRAM = "/usr/lib/rabbitmq/bin/rabbitmq-server"
"""Its own start script. The one on PATH of Debian changes to the user of the system's server."""

GREETING = b"AMQP\x00\x00\x09\x01"
STOP_SECONDS = 10.0


class RabbitServer(ChildServer):
    """One RabbitMQ with a folder of its own, and the name server of Erlang that it needs."""

    program = PROGRAM
    start_seconds = 240.0

    def __init__(self, folder: Path, *, config: str = "") -> None:
        """Prepare a server that keeps all it writes in `folder`; `config` is the text of its configuration file."""
        super().__init__()
        self._config = config
        self.folder = folder
        self.log = folder / "rabbitmq.log"
        self._names: subprocess.Popen[bytes] | None = None
        self._names_port = 0
        self._nodes_port = 0

    @property
    def url(self) -> str:
        """Where clients connect, in the form of oslo.messaging; the same after each start."""
        return f"rabbit://guest:guest@127.0.0.1:{self.port}/"

    def stop(self) -> None:
        """End the server in order, and its name server."""
        super().stop()
        names, self._names = self._names, None
        if names is not None:
            names.send_signal(signal.SIGTERM)
            try:
                names.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                names.kill()
                names.wait()

    def _launch(self, program: Path) -> subprocess.Popen[bytes]:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = self.port or free_port()
        self._names_port = self._names_port or free_port()
        self._nodes_port = self._nodes_port or free_port()
        (self.folder / "rabbitmq.conf").write_text(self._config, encoding="utf-8")
        environment = self._environment()
        with self.log.open("ab") as log:
            if self._names is None:
                epmd = find_program("epmd")
                if epmd is None:
                    raise FileNotFoundError("epmd")
                # One that the server itself would start stays when the server ends.
                self._names = subprocess.Popen([str(epmd)], env=environment, stdout=log, stderr=log, cwd=self.folder)
            return subprocess.Popen(
                [str(program)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, env=environment
            )

    def _environment(self) -> dict[str, str]:
        folder = self.folder
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(self._names_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"skep-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._nodes_port),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "logs"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "environment"),
            # The script becomes the server, which then has the number of our child.
            "RABBITMQ_ALLOW_INPUT": "1",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-noinput -kernel inet_dist_use_interface {127,0,0,1}",
        }

    def _last_words(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-2000:]

    def _answers(self, pid: int) -> bool:  # noqa: ARG002 - its port says who it is
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as connection:
                connection.settimeout(1.0)
                connection.sendall(GREETING)
                return connection.recv(1) == b"\x01"  # a frame with a method: it begins to speak
        except OSError:
            return False
