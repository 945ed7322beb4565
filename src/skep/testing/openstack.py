"""The real `openstack` client in tests: runs as a subprocess with a clouds.yaml, answers with parsed JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from skep.cli.openstack_client import ClientFailed, OpenStackClient, client_environment, find_client
from skep.testing.eventually import PATIENCE

__all__ = ["ClientFailed", "OpenStackClient", "client_environment", "find_client", "openstack", "refusal"]


async def openstack(clouds_yaml: Path, *arguments: str, cloud: str = "skep", timeout: float = PATIENCE) -> Any:
    """Run one command with `-f json` and return its value. Raises ClientFailed when it fails or takes too long."""
    return await OpenStackClient(clouds_yaml, cloud, timeout=timeout).json(*arguments)


async def refusal(clouds_yaml: Path, *arguments: str, cloud: str = "skep", timeout: float = PATIENCE) -> str:
    """Run one command that has to fail, and return what the client said.

    Raises AssertionError when it succeeds.
    """
    try:
        printed = await OpenStackClient(clouds_yaml, cloud, timeout=timeout).run(*arguments)
    except ClientFailed as error:
        return str(error)
    raise AssertionError(f"openstack {' '.join(arguments)} should have failed but printed: {printed}")
