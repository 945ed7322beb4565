"""The real `openstack` client without its imports: each command is forked from one process that has made them.

    python -m tests.support.forked_client SOCKET     # serves until the end of its input

A program that `write_program` makes stands where the client would: it hands its words, variables, directory and files
to that process. What is forked there runs the client's own `main` with them, and ends with the program.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

STANDARD_INPUT = 0
IMPORTED = ("openstack.", "cliff.formatter.")
"""The client's commands and forms of output: beginnings of groups of entry points."""

PROGRAM = """#!{interpreter} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as parent:
    parent.connect({address!r})
    socket.send_fds(parent, [b"!"], [0, 1, 2])
    order = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()])
    parent.sendall(order.encode() + b"\\n")
    status = parent.makefile().readline()
sys.exit(int(status) if status else "the client ended without a status")
"""


def write_program(path: Path, address: Path) -> None:
    """Write the program that has what serves at `address` do its work."""
    path.write_text(PROGRAM.format(interpreter=sys.executable, address=str(address)))
    path.chmod(0o700)


def serve(listening: socket.socket, run: Callable[[list[str]], int | None]) -> None:
    """Fork a process for each program that connects, until the end of standard input."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([listening.fileno(), STANDARD_INPUT], [], [])
        if STANDARD_INPUT in ready:
            return
        program, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            _obey(program, run)
        program.close()


def _obey(program: socket.socket, run: Callable[[list[str]], int | None]) -> None:
    """Be the client for one command; never returns."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _, files, _, _ = socket.recv_fds(program, 1, 3)
        with program.makefile("rb") as said:
            arguments, environment, directory = json.loads(said.readline())
        for standard, file in enumerate(files):
            os.dup2(file, standard)
            os.close(file)
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["openstack", *arguments]
        threading.Thread(target=_end_with, args=(program,), daemon=True).start()
        status = _status_of(run, arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - whatever it is, the program is told
        traceback.print_exc()
    finally:
        program.sendall(f"{status}\n".encode())
        os._exit(status)


def _end_with(program: socket.socket) -> None:
    """End this process when the program has ended, which says nothing more."""
    program.recv(1)
    os._exit(1)


def _status_of(run: Callable[[list[str]], int | None], arguments: list[str]) -> int:
    try:
        return run(arguments) or 0
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        sys.stderr.write(f"{ended.code}\n")
        return 1


def client() -> Callable[[list[str]], int | None]:
    """Import the client with all its commands, and return its `main`."""
    main: Callable[[list[str]], int | None] = importlib.import_module("openstackclient.shell").main
    known = entry_points()
    for group in known.groups:
        if group.startswith(IMPORTED):
            for entry in known.select(group=group):
                entry.load()
    # The first parser of a process reads what all installed packages tell of themselves.
    importlib.import_module("openstackclient.compute.v2.server").ListServer(None, None).get_parser("server list")
    return main


if __name__ == "__main__":
    with socket.socket(socket.AF_UNIX) as waiting:
        waiting.bind(sys.argv[1])
        waiting.listen()
        sys.stdout.write("listening\n")
        sys.stdout.flush()
        sys.argv = ["openstack"]  # what its modules call themselves
        serve(waiting, client())
