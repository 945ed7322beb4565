"""The crash walk beside a network service and a volume service: whatever dies, they have what the servers have.

A cloud also dies when a request comes to a service: just before the service does what it is asked, and just after.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec

from skep.config.sections import Config
from skep.contracts.eventually import PATIENCE
from skep_lab.beside import judge
from skep_lab.beside.process import ProcessBeside
from skep_lab.beside.services import Json, ServicesBeside
from skep_lab.crash.operation import PLAIN, CloudKind
from skep_lab.crash.process import CrashProcess
from skep_lab.crash.walk import Walk
from skep_lab.faulty_service import Moment
from skep_lab.witnesses.witness import Findings

PORTS, VOLUMES = 2, 3
"""Of each server: one of its own and one of its user's; likewise, and one that goes with it although a user made it."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Where the cloud dies: at the `nth` of these requests to a service."""

    service: str
    method: str
    path: str
    """How the path ends; `*` stands for an id."""
    moment: Moment
    nth: int = 1

    def is_of(self, method: str, path: str, moment: Moment) -> bool:
        """Tell whether a request is one of these."""
        parts, wanted = path.partition("?")[0].strip("/").split("/")[1:], self.path.split("/")
        same = len(parts) == len(wanted) and all(one in (other, "*") for one, other in zip(wanted, parts, strict=True))
        return same and (method, moment) == (self.method, self.moment)

    def __str__(self) -> str:
        """Say which it is."""
        path = self.path.replace("/", "-").replace("*", "one")
        return f"{self.service}-{self.method}-{path}-{self.moment}-{self.nth}"


class WalkBeside(Walk):
    """A cloud beside its services, and what was asked of it."""

    def __init__(self, root: Path, kind: CloudKind = PLAIN, *, attaches: bool = False) -> None:
        """`attaches`: whether its hosts connect volumes."""
        self._attaches = attaches
        folder = root / "services"
        folder.mkdir()
        self.services = ServicesBeside(folder)
        self.services.start()
        super().__init__(root, kind)
        # The ports of its servers are elsewhere.
        self.asked.interfaces = None

    def begun(self, root: Path, config: Config, cells: int, hosts: int) -> CrashProcess:
        """Return the cloud beside the services."""
        fake = msgspec.structs.replace(config.compute.fake, attaches=self._attaches)
        config = msgspec.structs.replace(config, compute=msgspec.structs.replace(config.compute, fake=fake))
        return ProcessBeside(self.services, root, config, cells=cells, hosts=hosts)

    def stop(self) -> None:
        """Stop the cloud, then the services."""
        super().stop()
        self.services.stop()

    def create(self, name: str, members: int = PORTS) -> list[str]:
        """Ask for servers, each with ports and volumes of its own and of its user."""
        promised: list[str] = []
        for number in range(members):
            answer = self.sent("POST", "/servers", self._body(f"{name}-{number}"))
            if answer is None:
                break
            answer.raise_for_status()
            promised.append(answer.json()["server"]["id"])
        self.asked.created.update(promised)
        return promised

    def _body(self, name: str) -> Json:
        brought = {"source_type": "volume", "destination_type": "volume"}
        return {
            "server": {
                "name": name,
                "flavorRef": "1",
                "imageRef": self.process.image,
                "config_drive": True,
                "networks": [{"uuid": self.services.network}, {"port": self.services.new_port()}],
                "block_device_mapping_v2": [
                    {
                        "source_type": "image",
                        "uuid": self.process.image,
                        "destination_type": "local",
                        "boot_index": 0,
                        "delete_on_termination": True,
                    },
                    {**brought, "uuid": self.services.new_volume()},
                    {**brought, "uuid": self.services.new_volume(given=True), "delete_on_termination": True},
                    {
                        "source_type": "blank",
                        "destination_type": "volume",
                        "volume_size": 1,
                        "delete_on_termination": True,
                    },
                ],
            }
        }

    def a_volume(self) -> str:
        """Make a volume of the user's."""
        return self.services.new_volume()

    def observe(self) -> Findings:
        """Look once, also into the services."""
        findings = super().observe()
        seen = judge.look(self.process.state, self.services)
        beside = judge.differences(seen, self.services.things)
        audit = self.process.answer("/admin/v1/audit")["audit"]
        found = [f"audit: {one['kind']}: {one['subject']}: {one['evidence']}" for one in audit["differences"]]
        return Findings(
            stuck=findings.stuck,
            leaked=(*findings.leaked, *beside.leaked, *found),
            lost=(*findings.lost, *beside.lost, *_incomplete(seen, set(self.asked.created))),
            double_built=findings.double_built,
            errors_unjustified=findings.errors_unjustified,
        )

    def crash_at(self, request: Request, trigger: Callable[[], object]) -> None:
        """Have the cloud die at a request to a service that something sets off. Raises AssertionError: none came."""
        service = {"neutron": self.services.neutron, "cinder": self.services.cinder}[request.service]
        pid, passed = self.process.pid, 0

        def passes(method: str, path: str, moment: Moment) -> None:
            nonlocal passed
            if request.is_of(method, path, moment):
                passed += 1
                if passed == request.nth and pid is not None:
                    os.kill(pid, signal.SIGKILL)
                    if moment == "before":
                        raise ConnectionAbortedError("the service never gets it")

        before, service.passes = service.passes, passes
        try:
            trigger()
            if not self.process.died_by_itself(PATIENCE):
                raise AssertionError(f"nothing came by {request}; the end of the log:\n{self.process.tail()}")
        finally:
            service.passes = before


def _incomplete(seen: judge.SeenBeside, promised: set[str]) -> list[str]:
    """Say which servers have not all that they were promised."""
    return [
        f"{row.uuid} is {row.state} with {len(row.ports)} ports and {len(row.volumes)} volumes"
        for row in seen.rows.values()
        if row.uuid in promised and row.state != "error" and (len(row.ports), len(row.volumes)) != (PORTS, VOLUMES)
    ]
