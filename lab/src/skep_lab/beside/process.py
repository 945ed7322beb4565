"""A cloud that dies and starts anew beside services that live on."""

from __future__ import annotations

from pathlib import Path

import httpx

from skep.config.sections import Config
from skep_lab.beside.services import ServicesBeside
from skep_lab.crash.process import CloudDied, CrashProcess

STARTS = 3


class ProcessBeside(CrashProcess):
    """A cloud of one process; its user signs in at the services."""

    def __init__(self, services: ServicesBeside, root: Path, config: Config, *, cells: int, hosts: int) -> None:
        """Take services that run."""
        super().__init__(root, services.beside(config), cells=cells, hosts=hosts)
        self._services = services

    def start(self, down: int = 0) -> None:
        """Start, once more where its identity service did not answer in time; volumes may be made of its image then."""
        for left in range(STARTS - 1, -1, -1):
            try:
                super().start(down)
                break
            except CloudDied:
                if not left or self.running:
                    raise
        self._services.know_image(self.image)

    def _hosts_up(self, down: int) -> int:
        """Count none where the cloud cannot ask its identity service at the moment."""
        try:
            return super()._hosts_up(down)
        except httpx.HTTPStatusError as error:
            if error.response.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                raise
            return 0

    def token(self, identity_url: str) -> str:  # noqa: ARG002 - the services know their own
        """Sign in at the services."""
        return self._services.token()
