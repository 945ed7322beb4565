"""Programs of others against a running Skep: a Go program over gophercloud, and a playbook of Ansible's modules."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import msgspec
import pytest

from skep.config.sections import QuotaSettings
from skep.contracts.http_cloud import http_config, serving_cloud
from skep.processes.seeds import passwords_in
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


@pytest.mark.needs_part("go", str(GOPHERCLOUD))
async def test_a_go_program_over_gophercloud(tmp_path: Path) -> None:
    program = tmp_path / "gophercloud"
    modules = {
        "GO111MODULE": "off",
        "GOPATH": str(GO_SOURCES),
        "GOCACHE": str(tmp_path / "cache"),
        "HOME": str(tmp_path),
    }
    await run("go", "build", "-o", program, HERE / "gophercloud/main.go", environment=modules)
    async with serving_cloud(http_config(tmp_path, quota=ROOMY)) as cloud:
        signs_in = {
            "OS_AUTH_URL": cloud.identity_url,
            "OS_USERNAME": "demo",
            "OS_PASSWORD": passwords_in(cloud.clouds_yaml)["demo"],
            "OS_PROJECT_NAME": "demo",
            "OS_DOMAIN_ID": "default",
            "OS_REGION_NAME": "RegionOne",
        }
        saw = msgspec.json.decode(await run(program, "m1.tiny", "m1.small", "tiny", "20", environment=signs_in))
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


@pytest.mark.needs_part(str(PLAYBOOK))
async def test_a_playbook_twice_and_its_undoing(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(b"an image of a team\n")
    async with serving_cloud(http_config(tmp_path), cells=1) as cloud:

        async def apply(state: str) -> int:
            """Run the playbook; how many of its tasks changed something."""
            facts = {"state": state, "file": str(image), "public_key": PUBLIC_KEY}
            words = ("-i", "localhost,", "-e", msgspec.json.encode(facts).decode(), HERE / "ansible/servers.yml")
            environment = {
                "OS_CLIENT_CONFIG_FILE": str(cloud.clouds_yaml),
                "HOME": str(tmp_path),
                "ANSIBLE_PYTHON_INTERPRETER": str(PLAYBOOK.with_name("python")),
                "ANSIBLE_NOCOLOR": "1",
                "LC_ALL": "C.UTF-8",
            }
            said = await run(PLAYBOOK, *words, environment=environment)
            changed = re.search(r"changed=(\d+)", said)
            assert changed is not None, said
            return int(changed[1])

        assert await apply("present") == 4
        servers = await openstack(cloud.clouds_yaml, "server", "list", "--long")
        assert {(server["Name"], server["Status"], server["Image Name"]) for server in servers} == {
            ("team-1", "ACTIVE", "team-image"),
            ("team-2", "ACTIVE", "team-image"),
        }
        assert await apply("present") == 0
        assert await apply("absent") == 2
        assert await openstack(cloud.clouds_yaml, "server", "list") == []
