"""The suite's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

Sections = dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The cloud as an administrator finds it."""

    auth_url: str
    region: str
    password: str
    """Of the user `admin` in the project `admin`."""
    images: tuple[str, str]
    flavors: tuple[str, str]
    """Of two, the second is the larger."""
    hosts: int
    external_network: str = ""
    """Empty: the cloud has no networks."""
    network_extensions: tuple[str, ...] = ("all",)
    """Aliases of what the network service has; `all`: whatever the suite knows of."""
    multiattach_type: str = ""
    """The type of volumes that several servers may have; empty: the cloud has no volumes."""
    logs_in: bool = False
    """Guests are machines that have screens, and that the suite logs into at their floating addresses."""
    seconds: int = 120
    """So long the suite waits for a server or an image."""


def sections(cloud: Surroundings, work: Path) -> Sections:
    """Return the sections and keys of `tempest.conf`."""
    several = str(cloud.hosts > 1).lower()
    scope = dict.fromkeys(("nova", "keystone", "glance"), "true")
    networks = str(bool(cloud.external_network)).lower()
    volumes = str(bool(cloud.multiattach_type)).lower()
    absent = dict.fromkeys(("swift", "horizon"), "false")
    consoles = dict.fromkeys(("spice_console", "serial_console"), "false")
    logs_in = str(cloud.logs_in).lower()
    moves = ("cold_migration", "live_migration", "shelve_migrate", "block_migration_for_live_migration")
    return {
        "DEFAULT": {"log_dir": str(work), "log_file": "tempest.log", "debug": "true", "use_stderr": "false"},
        "oslo_concurrency": {"lock_path": str(work / "locks")},
        "auth": {
            "use_dynamic_credentials": "true",
            "create_isolated_networks": networks,
            "admin_username": "admin",
            "admin_password": cloud.password,
            "admin_project_name": "admin",
            "admin_domain_name": "Default",
        },
        "identity": {"uri_v3": cloud.auth_url, "auth_version": "v3", "region": cloud.region},
        "service_available": {"nova": "true", "glance": "true", "neutron": networks, "cinder": volumes, **absent},
        "network": {
            "public_network_id": cloud.external_network,
            "project_network_cidr": "10.100.0.0/16",
            "project_network_mask_bits": "24",
        },
        "network-feature-enabled": {"api_extensions": ",".join(cloud.network_extensions), "ipv6": "true"},
        "volume": {
            "catalog_type": "block-storage",
            "volume_size": "1",
            "volume_type_multiattach": cloud.multiattach_type,
            "min_microversion": "3.0",
            "max_microversion": "latest",
            "build_timeout": "120",
        },
        "volume-feature-enabled": {"backup": "false"},
        "enforce_scope": scope,
        "image": {"region": cloud.region, "build_timeout": str(cloud.seconds)},
        "image-feature-enabled": {"import_image": "false"},
        "compute": {
            "image_ref": cloud.images[0],
            "image_ref_alt": cloud.images[1],
            "flavor_ref": cloud.flavors[0],
            "flavor_ref_alt": cloud.flavors[1],
            "min_compute_nodes": str(cloud.hosts),
            "min_microversion": "2.1",
            "max_microversion": "latest",
            "build_timeout": str(cloud.seconds),
            "build_interval": "1",
            "fixed_network_name": "",
        },
        "compute-feature-enabled": {
            **dict.fromkeys(moves, several),
            **consoles,
            "live_migrate_back_and_forth": logs_in,
            "vnc_console": logs_in,
            "resize": "true",
            # Of a guest that boots no agent answers yet, and the suite does not wait for one.
            "change_password": str(not cloud.logs_in).lower(),
            "personality": "true",
            "hostname_fqdn_sanitization": "true",
            "stable_rescue": "true",
            "attach_encrypted_volume": "false",
            "volume_multiattach": volumes,
            "volume_backed_live_migration": volumes,
            "swap_volume": "false",
            "nova_policy_roles": "admin,manager,member,reader,service",
            "scheduler_enabled_filters": "ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,"
            "ServerGroupAntiAffinityFilter,ServerGroupAffinityFilter,SameHostFilter,DifferentHostFilter",
        },
        "validation": {
            "run_validation": logs_in,
            "connect_method": "floating",
            "image_ssh_user": "root",
            "image_alt_ssh_user": "root",
            "ping_timeout": str(cloud.seconds),
            "ssh_timeout": str(cloud.seconds),
        },
    }


def written(known: Mapping[str, Mapping[str, str]]) -> str:
    """Return the sections as the suite reads them."""
    return "\n".join(
        f"[{section}]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items())
        for section, keys in known.items()
    )
