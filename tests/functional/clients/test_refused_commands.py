"""Commands of the real `openstack` client for what is not there: each refusal names what is missing."""

from __future__ import annotations

from pathlib import Path

import msgspec

from skep.config.networks import NetworksSettings
from skep.contracts.http_cloud import http_config, serving_cloud
from tests.support.openstack import openstack, openstack_quiet, refusal

NO_NETWORKS = "no network service is configured"
ONE_MORE = "11111111-2222-4333-8444-555555555555"
REFUSED = {
    ("server", "add", "port"): NO_NETWORKS,
    ("server", "add", "fixed", "ip"): NO_NETWORKS,
    ("server", "add", "network"): NO_NETWORKS,
    ("server", "add", "floating", "ip"): "endpoint for network service",
    ("server", "remove", "port"): "could not be found",
    ("server", "remove", "fixed", "ip"): "is not supported on this method",
    ("server", "remove", "floating", "ip"): "endpoint for network service",
    ("server", "add", "security", "group"): "security groups are not part of this release",
    ("server", "remove", "security", "group"): "security groups are not part of this release",
    ("server", "add", "volume"): "endpoint for block-storage service",
    ("server", "remove", "volume"): "endpoint for block-storage service",
    ("server", "volume", "update"): "endpoint for block-storage service",
    ("server", "add", "share"): "endpoint for shared-file-system service",
    ("server", "remove", "share"): "endpoint for shared-file-system service",
    ("server", "share", "show"): "endpoint for shared-file-system service",
}
"""Commands that take a server and one more thing."""

REFUSED_AS_WHOLE = {
    ("server", "ssh", "one"): "No public IP",
    ("server", "volume", "set", "one", "v", "--delete-on-termination"): "endpoint for block-storage service",
    ("server", "share", "list", "one"): "shares are not part of this release",
    ("compute", "agent", "list"): "agents of guests were given up",
    (
        "compute",
        "agent",
        "create",
        "linux",
        "x86_64",
        "1",
        "http://x",
        "0" * 32,
        "kvm",
    ): "agents of guests were given up",
    ("compute", "agent", "set", "1", "--url", "http://x"): "agents of guests were given up",
    ("compute", "agent", "delete", "1"): "agents of guests were given up",
    ("image", "import", "tiny"): "not supported by this deployment",
    ("image", "stage", "tiny", "--file", __file__): "queued state",
    ("image", "stores", "list"): "not enabled",
    ("image", "metadef", "namespace", "list"): "404: Client Error",
    ("image", "task", "list"): "404: Client Error",
    ("image", "task", "show", "one"): "No Task found",
}


async def test_each_is_refused_by_its_name(tmp_path: Path) -> None:
    config = msgspec.structs.replace(http_config(tmp_path), networks=NetworksSettings(kind="none"))
    async with serving_cloud(config, cells=1, hosts=1) as cloud:
        yaml = cloud.clouds_yaml
        await openstack(yaml, "server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--wait", "one")
        # The client looks for interfaces there, finds none, and has nothing to ask for.
        await openstack_quiet(yaml, "server", "remove", "network", "one", "192.0.2.1")
        assert await openstack(yaml, "server", "volume", "list", "one") == []
        commands = {(*command, "one", ONE_MORE): words for command, words in REFUSED.items()} | REFUSED_AS_WHOLE
        for command, words in commands.items():
            # Shares came with 2.97, and the client refuses by itself below.
            version = ("--os-compute-api-version", "2.97") if "share" in command else ()
            assert words in await refusal(yaml, *version, *command), command
