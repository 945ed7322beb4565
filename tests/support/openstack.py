"""The real `openstack` client in tests: runs as a subprocess with a clouds.yaml, answers with parsed JSON."""

from __future__ import annotations

import atexit
import functools
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from skep.cli.openstack_client import ClientFailed, OpenStackClient
from skep.contracts.eventually import PATIENCE
from tests.support import forked_client

__all__ = ["ClientFailed", "OpenStackClient", "client_program", "openstack", "openstack_quiet", "refusal"]


@functools.cache
def client_program() -> Path:
    """Return a program that is the client, forked from a process that has imported it and ends with this one."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(serving_client())


@contextmanager
def serving_client(within: Sequence[str] = ()) -> Iterator[Path]:
    """Have a program `openstack`, forked from a process that has imported the client. `within`: words before that."""
    with tempfile.TemporaryDirectory(prefix="skep-openstack-") as folder:
        address, program = Path(folder, "socket"), Path(folder, "openstack")
        server = subprocess.Popen(
            [*within, sys.executable, "-m", forked_client.__name__, str(address)],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"listening\n"
            forked_client.write_program(program, address)
            yield program
        finally:
            server.communicate()


async def openstack(clouds_yaml: Path, *arguments: str, cloud: str = "skep", timeout: float = PATIENCE) -> Any:
    """Run one command with `-f json` and return its value. Raises ClientFailed when it fails or takes too long."""
    return await _client(clouds_yaml, cloud, timeout).json(*arguments)


async def openstack_quiet(clouds_yaml: Path, *arguments: str, cloud: str = "skep", timeout: float = PATIENCE) -> str:
    """Run one command as it is and return what it printed. Raises as `openstack`."""
    return await _client(clouds_yaml, cloud, timeout).run(*arguments)


async def refusal(clouds_yaml: Path, *arguments: str, cloud: str = "skep", timeout: float = PATIENCE) -> str:
    """Run one command that has to fail, and return what the client said.

    Raises AssertionError when it succeeds.
    """
    try:
        printed = await openstack_quiet(clouds_yaml, *arguments, cloud=cloud, timeout=timeout)
    except ClientFailed as error:
        return str(error)
    raise AssertionError(f"openstack {' '.join(arguments)} should have failed but printed: {printed}")


def _client(clouds_yaml: Path, cloud: str, timeout: float) -> OpenStackClient:
    return OpenStackClient(clouds_yaml, cloud, timeout=timeout, program=client_program())
