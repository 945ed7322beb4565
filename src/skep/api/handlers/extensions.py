"""Extensions: since microversions, a fixed list of names that old clients look for."""

from __future__ import annotations

from typing import Any

from skep.api.requests import Answer, ApiRequest
from skep.domain.errors import NotFound

_UPDATED = "2014-12-03T00:00:00Z"
_NAMES = {
    "OS-DCF": "DiskConfig",
    "OS-EXT-AZ": "ExtendedAvailabilityZone",
    "OS-EXT-SRV-ATTR": "ExtendedServerAttributes",
    "OS-EXT-STS": "ExtendedStatus",
    "OS-FLV-DISABLED": "FlavorDisabled",
    "OS-FLV-EXT-DATA": "FlavorExtraData",
    "OS-SCH-HNT": "SchedulerHints",
    "OS-SRV-USG": "ServerUsage",
    "os-aggregates": "Aggregates",
    "os-availability-zone": "AvailabilityZone",
    "os-block-device-mapping-v2-boot": "BlockDeviceMappingV2Boot",
    "os-config-drive": "ConfigDrive",
    "os-extended-volumes": "ExtendedVolumes",
    "os-flavor-access": "FlavorAccess",
    "os-flavor-extra-specs": "FlavorExtraSpecs",
    "os-flavor-manage": "FlavorManage",
    "os-hypervisors": "Hypervisors",
    "os-instance-actions": "InstanceActions",
    "os-multiple-create": "MultipleCreate",
    "os-quota-class-sets": "QuotaClasses",
    "os-quota-sets": "Quotas",
    "os-server-groups": "ServerGroups",
    "os-server-start-stop": "ServerStartStop",
    "os-services": "Services",
    "os-used-limits": "UsedLimits",
    "os-user-data": "UserData",
}


async def index(_request: ApiRequest) -> Answer:
    """`GET /extensions`."""
    return Answer({"extensions": [_view(alias) for alias in sorted(_NAMES)]})


async def show(request: ApiRequest) -> Answer:
    """`GET /extensions/{alias}`."""
    alias = request.params["alias"]
    if alias not in _NAMES:
        raise NotFound("The resource could not be found.")
    return Answer({"extension": _view(alias)})


def _view(alias: str) -> dict[str, Any]:
    return {
        "alias": alias,
        "name": _NAMES[alias],
        "description": f"{_NAMES[alias]}: part of the API.",
        "namespace": "https://docs.openstack.org/api-ref/compute/",
        "updated": _UPDATED,
        "links": [],
    }
