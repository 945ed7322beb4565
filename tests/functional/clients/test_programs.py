"""Programs of others against a running Skep: a Go program over gophercloud, and a playbook of Ansible's modules."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.config.sections import QuotaSettings
from skep.contracts.http_cloud import http_config, serving_cloud
from skep.contracts.neighbours.served import PASSWORDS
from skep.processes.seeds import passwords_in
from tests.support.cloud_beside import cloud_beside
from tests.support.openstack import openstack

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
GO_SOURCES = Path("/usr/share/gocode")
"""Where Debian keeps the sources of Go's libraries."""
GOPHERCLOUD = GO_SOURCES / "src/github.com/gophercloud/gophercloud/params.go"
PLAYBOOK = ROOT / ".skep-tools/ansible/bin/ansible-playbook"
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl team"
ROOMY = QuotaSettings(instances=50, cores=100, ram=204_800)

pytestmark = pytest.mark.timeout(900)


async def run(*words: str | Path, environment: dict[str, str]) -> str:
    """Run a program with this environment beside PATH, and return what it printed. It fails the test if it fails."""
    process = await asyncio.create_subprocess_exec(
        *words,
        env={"PATH": os.environ["PATH"], **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(process.communicate(), 600)
    assert process.returncode == 0, out.decode() + errors.decode()
    return out.decode()


async def go_program(folder: Path) -> Path:
    """Make the program of the Go sources beside this file."""
    program = folder / "gophercloud"
    modules = {
        "GO111MODULE": "off",
        "GOPATH": str(GO_SOURCES),
        "GOCACHE": str(folder / "cache"),
        "HOME": str(folder),
    }
    sources = sorted((HERE / "gophercloud").glob("*.go"))
    await run("go", "build", "-o", program, *sources, environment=modules)
    return program


def signs_in(identity_url: str, password: str) -> dict[str, str]:
    """Return the variables by which a Go program signs in as the user `demo`."""
    return {
        "OS_AUTH_URL": identity_url,
        "OS_USERNAME": "demo",
        "OS_PASSWORD": password,
        "OS_PROJECT_NAME": "demo",
        "OS_DOMAIN_ID": "default",
        "OS_REGION_NAME": "RegionOne",
    }


@pytest.mark.needs_part("go", str(GOPHERCLOUD))
async def test_a_go_program_over_gophercloud(tmp_path: Path) -> None:
    program = await go_program(tmp_path)
    async with serving_cloud(http_config(tmp_path, quota=ROOMY)) as cloud:
        environment = signs_in(cloud.identity_url, passwords_in(cloud.clouds_yaml)["demo"])
        words = ("servers", "m1.tiny", "m1.small", "tiny", "20")
        saw = msgspec.json.decode(await run(program, *words, environment=environment))
    names = [f"many-{number:02d}" for number in range(20)]
    assert saw == {
        "private key": True,
        "fingerprint kept": True,
        "key of the server": "go",
        "metadata": {"name": "life"},
        "resized": True,
        "replaced": True,
        "names": names,
        "pages": [7, 7, 6],
        "left": [],
    }


@pytest.mark.needs_part("go", str(GOPHERCLOUD))
async def test_a_go_program_with_ports_and_volumes(tmp_path: Path) -> None:
    program = await go_program(tmp_path)
    async with cloud_beside(tmp_path, networks=True, volumes=True) as beside:
        await beside.image()
        yaml = beside.for_clients(tmp_path)
        outside = await outside_network(yaml)
        environment = signs_in(beside.behind.identity.settings.public_url, PASSWORDS["demo"])
        saw = msgspec.json.decode(await run(program, "attached", "m1.tiny", "tiny", outside, environment=environment))
        assert not beside.volumes.volumes
        assert not beside.volumes.attachments
        assert {one["Name"] for one in await openstack(yaml, "network", "list")} == {"outside"}
        assert await openstack(yaml, "port", "list") == []
    assert saw == {
        "address of a port": [["fixed", "10.9.0.7"]],
        "floating address": True,
        "interfaces": ["10.9.0.7", "10.9.0.8"],
        "address that is left": [["fixed", "10.9.0.7"]],
        "devices": ["/dev/vda", "/dev/vdb"],
        "attachment": True,
        "attached to": True,
        "attached once": True,
        "left": 1,
    }


async def outside_network(yaml: Path) -> str:
    """Have the admin make an external network; return its id."""
    made = await openstack(yaml, "network", "create", "--external", "outside")
    subnet = "subnet create --network outside --subnet-range 198.51.100.0/24 --no-dhcp outside-v4"
    await openstack(yaml, *subnet.split())
    return str(made["id"])


async def changes(tmp_path: Path, yaml: Path, playbook: str, **facts: str) -> int:
    """Run a playbook; return how many of its tasks changed something."""
    words = ("-i", "localhost,", "-e", msgspec.json.encode(facts).decode(), HERE / "ansible" / playbook)
    environment = {
        "OS_CLIENT_CONFIG_FILE": str(yaml),
        "HOME": str(tmp_path),
        "ANSIBLE_PYTHON_INTERPRETER": str(PLAYBOOK.with_name("python")),
        "ANSIBLE_NOCOLOR": "1",
        "LC_ALL": "C.UTF-8",
    }
    said = await run(PLAYBOOK, *words, environment=environment)
    changed = re.search(r"changed=(\d+)", said)
    assert changed is not None, said
    return int(changed[1])


@pytest.mark.needs_part(str(PLAYBOOK))
async def test_a_playbook_twice_and_its_undoing(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(b"an image of a team\n")
    async with serving_cloud(http_config(tmp_path), cells=1) as cloud:

        async def apply(state: str) -> int:
            facts = {"state": state, "file": str(image), "public_key": PUBLIC_KEY}
            return await changes(tmp_path, cloud.clouds_yaml, "servers.yml", **facts)

        assert await apply("present") == 4
        servers = await openstack(cloud.clouds_yaml, "server", "list", "--long")
        assert {(server["Name"], server["Status"], server["Image Name"]) for server in servers} == {
            ("team-1", "ACTIVE", "team-image"),
            ("team-2", "ACTIVE", "team-image"),
        }
        assert await apply("present") == 0
        assert await apply("absent") == 2
        assert await openstack(cloud.clouds_yaml, "server", "list") == []


@pytest.mark.needs_part(str(PLAYBOOK))
async def test_a_playbook_with_ports_and_volumes(tmp_path: Path) -> None:
    async with cloud_beside(tmp_path, networks=True, volumes=True) as beside:
        await beside.image()
        yaml = beside.for_clients(tmp_path)
        await outside_network(yaml)

        async def listed(*command: str) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = await openstack(yaml, *command, cloud="skep-demo")
            return found

        assert await changes(tmp_path, yaml, "attached.yml", state="present") == 10
        for server, volumes in (("team-front", ["/dev/vda"]), ("team-back", ["/dev/vda", "/dev/vdb"])):
            shown = await openstack(yaml, "server", "show", server, cloud="skep-demo")
            assert (shown["status"], shown["image"]) == ("ACTIVE", "N/A (booted from volume)")
            fixed, floating = sorted(shown["addresses"]["team"])
            assert (fixed.startswith("10.6.0."), floating.startswith("198.51.100.")) == (True, True)
            assert [one["Device"] for one in await listed("server", "volume", "list", server)] == volumes
        assert await changes(tmp_path, yaml, "attached.yml", state="present") == 0
        assert await changes(tmp_path, yaml, "attached.yml", state="absent") == 7
        for command in (("server",), ("volume",), ("volume", "snapshot"), ("port",), ("floating", "ip")):
            assert await listed(*command, "list") == [], command
        assert not beside.volumes.attachments
