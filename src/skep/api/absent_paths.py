"""What Nova serves and Skep does not: each path by the noun that is missing, for the text of its 404."""

from __future__ import annotations

from collections.abc import Sequence

_OF_THE_CLOUD = {
    "os-agents": "agents of guests",
    "os-assisted-volume-snapshots": "volume snapshots",
    "os-baremetal-nodes": "bare metal nodes",
    "os-cells": "cells in the compute API",
    "os-certificates": "certificates",
    "os-cloudpipe": "VPNs of projects",
    "os-console-auth-tokens": "consoles",
    "os-fixed-ips": "networks",
    "os-floating-ip-dns": "floating IP addresses",
    "os-floating-ip-pools": "floating IP addresses",
    "os-floating-ips": "floating IP addresses",
    "os-floating-ips-bulk": "floating IP addresses",
    "os-fping": "pings of servers",
    "os-hosts": "hosts in the compute API (os-hypervisors and os-services show them)",
    "os-instance_usage_audit_log": "usage audits",
    "os-networks": "networks",
    "os-security-group-default-rules": "security groups",
    "os-security-group-rules": "security groups",
    "os-security-groups": "security groups",
    "os-server-external-events": "events of other services",
    "os-simple-tenant-usage": "usage records",
    "os-snapshots": "volume snapshots",
    "os-tenant-networks": "networks",
    "os-virtual-interfaces": "network interfaces",
    "os-volume-types": "volume types",
    "os-volumes": "volumes",
    "os-volumes_boot": "volumes",
}
"""First word of a path -> what is not there."""

_OF_A_SERVER = {
    "consoles": "consoles",
    "os-interface": "network interfaces",
    "os-virtual-interfaces": "network interfaces",
    "os-volume_attachments": "volume attachments",
    "remote-consoles": "consoles",
    "shares": "shares",
}
"""The word behind `/servers/{id}` -> what is not there."""


def absent(words: Sequence[str]) -> str | None:
    """Return what is missing for a path of Nova's, in the plural; None for a path that Nova does not know either."""
    match words:
        case ["servers", _, word, *_]:
            return _OF_A_SERVER.get(word)
        case ["os-aggregates", _, "images"]:
            return "cached images of aggregates"
        case [word, *_]:
            return _OF_THE_CLOUD.get(word)
    return None
