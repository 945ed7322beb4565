"""What a server reads on its config drive, by the real `openstack` client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from skep.compute.drivers.fake import DRIVES
from skep.config.metadata import MetadataSettings
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import http_config, serving_cloud
from skep.contracts.loopback import plain_client
from skep.domain.guest_documents.proof import signature
from skep.processes.all_in_one import AllInOneCloud
from tests.support.openstack import openstack, openstack_quiet
from tests.support.public_keys import ssh_key

SECRET = "of proxies and of the service"
CREATE = ("server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--wait")


async def asked_for(cloud: AllInOneCloud, server: dict[str, Any]) -> dict[str, Any]:
    """Return what the metadata service tells the server."""
    assert cloud.metadata_url is not None
    headers = {
        "X-Instance-ID": server["id"],
        "X-Tenant-ID": server["project_id"],
        "X-Instance-ID-Signature": signature(SECRET, server["id"]),
    }
    async with plain_client(cloud.metadata_url) as proxy:
        answer = await proxy.get("/openstack/latest/meta_data.json", headers=headers)
    found: dict[str, Any] = answer.json()
    return found


async def test_it_says_what_the_server_is_wherever_it_goes(tmp_path: Path) -> None:
    key, script, vendor = tmp_path / "key.pub", tmp_path / "script", tmp_path / "vendor.json"
    key.write_text(ssh_key("me@here"))
    script.write_text("#!/bin/sh\necho hello\n")
    vendor.write_text('{"motd": "welcome"}')
    state = tmp_path / "state"
    state.mkdir()
    told_to_all = MetadataSettings(
        vendordata_jsonfile_path=str(vendor), service_metadata_proxy=True, metadata_proxy_shared_secret=SECRET, port=0
    )
    config = msgspec.structs.replace(http_config(state), metadata=told_to_all)
    async with serving_cloud(config) as cloud:
        yaml = cloud.clouds_yaml

        def drives() -> list[Path]:
            return sorted(state.rglob(f"{DRIVES}/*/openstack/latest"))

        def told() -> dict[str, Any]:
            [drive] = drives()
            assert (drive / "user_data").read_text() == script.read_text()
            assert json.loads((drive / "vendor_data.json").read_text()) == {"motd": "welcome"}
            found: dict[str, Any] = json.loads((drive / "meta_data.json").read_text())
            assert found["public_keys"] == {"mine": key.read_text()}
            return found

        await openstack(yaml, "keypair", "create", "--public-key", str(key), "mine")
        more = ("--key-name", "mine", "--user-data", str(script), "--config-drive", "True", "--property", "a=b")
        server = await openstack(yaml, *CREATE, *more, "one")
        assert server["config_drive"] in (True, "True")
        first = told()
        assert (first["uuid"], first["name"], first["meta"]) == (server["id"], "one", {"a": "b"})
        assert first["hostname"] == "one.novalocal"
        assert first.pop("admin_pass") == server["adminPass"]
        read = await asked_for(cloud, server)
        assert read.pop("random_seed") != first.pop("random_seed")
        assert read == first, "one source for both"
        await openstack_quiet(yaml, "keypair", "delete", "mine")
        await openstack_quiet(yaml, "server", "rebuild", "--password", "sesame", "--wait", "one")
        assert told()["admin_pass"] == "sesame"
        await openstack_quiet(yaml, "server", "migrate", "--wait", "one")
        await openstack_quiet(yaml, "server", "migration", "confirm", "one")

        async def moved() -> bool:
            shown = await openstack(yaml, "server", "show", "one")
            return bool(shown["status"] == "ACTIVE" and len(drives()) == 1)

        await eventually(moved, "the move is confirmed")
        assert "admin_pass" not in told()
        await openstack_quiet(yaml, "server", "migrate", "--live-migration", "--wait", "one")
        await eventually(moved, "the old host has undone its attempt")
        assert told()["uuid"] == server["id"]
        await openstack_quiet(yaml, "server", "delete", "--wait", "one")

        async def gone() -> bool:
            return not list(state.rglob(f"{DRIVES}/*/openstack"))

        await eventually(gone, "nothing of the drive is left")
        await openstack(yaml, *CREATE, "without")
        assert drives() == []
