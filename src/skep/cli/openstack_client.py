"""The real `openstack` client as a subprocess."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from skep.domain.errors import Misconfigured, SkepError


class ClientFailed(SkepError):
    """The client ended with a status other than 0, or not in time; the text is what it wrote to standard error."""

    def __init__(self, status: int | None, command: str, errors: str) -> None:
        super().__init__(f"{command}: {errors.strip() or f'status {status}'}")
        self.status = status
        """None when it was ended because it took too long."""


def find_client() -> Path | None:
    """Return the `openstack` client beside this interpreter, else the one on PATH."""
    beside = Path(sys.executable).with_name("openstack")
    if beside.is_file():
        return beside
    found = shutil.which("openstack")
    return None if found is None else Path(found)


def client_environment(clouds_yaml: Path, cloud: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return an environment in which clients mean this cloud and no other."""
    kept = {name: value for name, value in environ.items() if not name.startswith("OS_")}
    return {**kept, "OS_CLIENT_CONFIG_FILE": str(clouds_yaml.resolve()), "OS_CLOUD": cloud}


class OpenStackClient:
    """Runs `openstack` against one cloud of a clouds.yaml. `timeout`: seconds for each command."""

    def __init__(
        self, clouds_yaml: Path, cloud: str = "skep", *, timeout: float = 60.0, program: Path | None = None
    ) -> None:
        """Find the client, unless it is the `program` that is given.

        Raises Misconfigured when it is not installed.
        """
        program = program or find_client()
        if program is None:
            raise Misconfigured("the openstack client is not installed (python-openstackclient)")
        self._program = program
        self._environment = client_environment(clouds_yaml, cloud)
        self._timeout = timeout

    async def run(self, *arguments: str) -> str:
        """Run a command and return what it printed.

        Raises ClientFailed when its status is not 0 or it takes too long; then it is ended.
        """
        command = " ".join(("openstack", *arguments))
        process = await asyncio.create_subprocess_exec(
            self._program,
            *arguments,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, errors = await asyncio.wait_for(process.communicate(), self._timeout)
        except TimeoutError:
            raise ClientFailed(None, command, f"no answer in {self._timeout:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            raise ClientFailed(process.returncode, command, errors.decode(errors="replace"))
        return out.decode(errors="replace")

    async def json(self, *arguments: str) -> Any:
        """Run a command with `-f json` and return what it printed as a value. Raises as `run`."""
        return msgspec.json.decode(await self.run(*arguments, "-f", "json"))
