"""Key pairs by the real `openstack` client."""

from __future__ import annotations

from pathlib import Path

from skep.contracts.http_cloud import http_config, serving_cloud
from tests.support.openstack import openstack, openstack_quiet, refusal
from tests.support.public_keys import ssh_key


async def test_key_pairs_and_a_server_with_one(tmp_path: Path) -> None:
    brought = tmp_path / "key.pub"
    brought.write_text(f"{ssh_key('me@here')}\n")
    old = ("--os-compute-api-version", "2.91")
    async with serving_cloud(http_config(tmp_path)) as cloud:
        yaml = cloud.clouds_yaml
        made = await openstack(yaml, "keypair", "create", "--public-key", str(brought), "mine")
        assert (made["name"], made["type"]) == ("mine", "ssh")
        printed = await openstack_quiet(yaml, *old, "keypair", "create", "generated")
        assert printed.startswith("-----BEGIN ")
        listed = await openstack(yaml, "keypair", "list")
        assert [one["Name"] for one in listed] == ["generated", "mine"]
        shown = await openstack(yaml, "keypair", "show", "mine")
        assert shown["fingerprint"] == made["fingerprint"]
        assert await openstack_quiet(yaml, "keypair", "show", "--public-key", "mine") == f"{ssh_key('me@here')}\n\n"
        assert await openstack(yaml, "keypair", "list", cloud="skep-demo") == []
        create = ("server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--key-name")
        assert "key_name" in await refusal(yaml, *create, "mine", "refused", cloud="skep-demo")
        server = await openstack(yaml, *create, "mine", "--wait", "one")
        assert server["key_name"] == "mine"
        await openstack_quiet(yaml, "keypair", "delete", "mine", "generated")
        assert await openstack(yaml, "keypair", "list") == []
        assert (await openstack(yaml, "server", "show", "one"))["key_name"] == "mine"
