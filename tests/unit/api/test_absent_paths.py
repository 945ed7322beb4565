"""Every path of Nova's is served, or said by its name not to be part of this release."""

from __future__ import annotations

import pytest

from skep.api.microversions import MAXIMUM, MINIMUM
from skep.api.routes import ROUTES
from skep.api.routing import MethodNotAllowed, Router
from skep.domain.errors import NotFound, SkepError, Withdrawn

ROUTER = Router(ROUTES)
ID = "70a599e0-31e7-49b7-b260-868f441e862b"

COLLECTIONS = """
extensions flavors flavors/detail images images/detail limits os-agents os-aggregates os-assisted-volume-snapshots
os-availability-zone os-baremetal-nodes os-cells os-certificates os-cloudpipe os-fixed-ips os-floating-ip-dns
os-floating-ip-pools os-floating-ips os-floating-ips-bulk os-fping os-hosts os-hypervisors os-instance_usage_audit_log
os-keypairs os-migrations os-networks os-security-group-default-rules os-security-group-rules os-security-groups
os-server-external-events os-server-groups os-services os-simple-tenant-usage os-snapshots os-tenant-networks
os-volume-types os-volumes os-volumes/detail os-volumes_boot servers servers/detail
""".split()
THINGS = """
extensions flavors images os-aggregates os-cells os-certificates os-console-auth-tokens os-fixed-ips os-floating-ips
os-fping os-hosts os-hypervisors os-keypairs os-networks os-quota-class-sets os-quota-sets os-security-group-rules
os-security-groups os-server-groups os-services os-simple-tenant-usage os-snapshots os-tenant-networks os-volume-types
os-volumes servers
""".split()
OF_A_SERVER = """
action consoles diagnostics ips metadata migrations os-instance-actions os-interface os-security-groups
os-server-password os-virtual-interfaces os-volume_attachments remote-consoles shares tags topology
""".split()
NOVAS = [
    *COLLECTIONS,
    *(f"{name}/{ID}" for name in THINGS),
    *(f"servers/{ID}/{name}" for name in OF_A_SERVER),
    *(f"servers/{ID}/{name}/{ID}" for name in ("migrations", "os-interface", "os-volume_attachments", "shares")),
    f"os-aggregates/{ID}/images",
    f"servers/{ID}/migrations/{ID}/action",
]


def _refusal(method: str, path: str, version: int) -> SkepError | None:
    try:
        ROUTER.find(method, path.split("/"), version)
    except SkepError as error:
        return error
    return None


@pytest.mark.parametrize("version", [MINIMUM, MAXIMUM])
@pytest.mark.parametrize("path", NOVAS)
def test_a_path_of_novas_is_served_or_named(path: str, version: int) -> None:
    for before in ("", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/"):
        for method in ("GET", "POST", "DELETE"):
            error = _refusal(method, before + path, version)
            if isinstance(error, NotFound) and "is not supported on this method" not in str(error):
                assert str(error).startswith("The resource could not be found: ")
                assert str(error).endswith(" are not part of this release.")
            else:
                assert error is None or isinstance(error, (NotFound, MethodNotAllowed, Withdrawn))


def test_what_nova_has_not_either_is_just_not_found() -> None:
    for path in ("cheese", "os-cheese/1", f"servers/{ID}/cheese", f"os-aggregates/{ID}/cheese", ""):
        assert str(_refusal("GET", path, MAXIMUM)) == "The resource could not be found."


def test_volumes_are_called_so() -> None:
    said = str(_refusal("GET", "os-volume-types", MINIMUM))
    assert said == "The resource could not be found: volume types are not part of this release."


@pytest.mark.parametrize("version", [MINIMUM, 36, MAXIMUM])
@pytest.mark.parametrize(
    "path", ["os-agents", f"os-cells/{ID}", "os-fping", f"servers/{ID}/consoles", f"servers/{ID}/os-virtual-interfaces"]
)
def test_what_nova_has_given_up_is_gone_at_every_microversion(path: str, version: int) -> None:
    assert isinstance(_refusal("GET", path, version), Withdrawn)


@pytest.mark.parametrize(
    ("path", "last"),
    [(f"os-volume-types/{ID}", 35), ("os-baremetal-nodes", 35)],
)
def test_old_proxies_end_where_novas_end(path: str, last: int) -> None:
    assert "are not part of this release" in str(_refusal("GET", path, last))
    assert "is not supported on this method" in str(_refusal("GET", path, last + 1))


def test_networks_are_no_longer_made_here() -> None:
    assert isinstance(_refusal("POST", "os-networks", 1), Withdrawn)
    assert isinstance(_refusal("POST", "os-networks/add", 1), Withdrawn)
    assert isinstance(_refusal("DELETE", f"os-tenant-networks/{ID}", 1), Withdrawn)
    assert isinstance(_refusal("PUT", "os-networks", 1), MethodNotAllowed)
