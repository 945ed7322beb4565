"""Requests of traces: servers that ask for the same share one request, as they would share a flavor."""

from __future__ import annotations

from skep.domain.flavors import Flavor
from skep.domain.ids import ProjectId, UserId
from skep.domain.request_specs import RequestSpec

GPU_MILLI = "CUSTOM_GPU_MILLI"
"""Thousandths of a GPU."""
_USER = UserId("trace")


class Requests:
    """The different requests of a trace."""

    def __init__(self) -> None:
        self._specs: dict[tuple[object, ...], RequestSpec] = {}

    def spec(
        self,
        vcpus: int,
        memory_mb: int,
        *,
        disk_gb: int = 0,
        project: str = "trace",
        extra_specs: tuple[tuple[str, str], ...] = (),
    ) -> RequestSpec:
        """Return the request for a server of this size."""
        kind = (vcpus, memory_mb, disk_gb, project, extra_specs)
        spec = self._specs.get(kind)
        if spec is None:
            name = f"{vcpus}-{memory_mb}-{disk_gb}"
            flavor = Flavor(
                flavorid=name,
                name=name,
                vcpus=vcpus,
                memory_mb=memory_mb,
                root_gb=disk_gb,
                extra_specs=dict(extra_specs),
            )
            spec = self._specs[kind] = RequestSpec(project_id=ProjectId(project), user_id=_USER, flavor=flavor)
        return spec
