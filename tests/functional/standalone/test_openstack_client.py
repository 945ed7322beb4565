"""The real command line of OpenStack against both services over HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from skep.contracts.neighbours.served import PASSWORDS, ServedNeighbours, neighbours
from skep.domain.clock import Clock
from tests.support.openstack import client_program

Run = Callable[..., Awaitable[Any]]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedNeighbours]:
    async with neighbours(tmp_path, Clock()) as opened, opened.served():
        yield opened


def _signed_in(user: str) -> dict[str, str]:
    return {
        "OS_USERNAME": user,
        "OS_PASSWORD": PASSWORDS.get(user, "new-password"),
        "OS_PROJECT_NAME": user,
        "OS_USER_DOMAIN_NAME": "Default",
        "OS_PROJECT_DOMAIN_NAME": "Default",
    }


@pytest.fixture
def openstack(served: ServedNeighbours, tmp_path: Path) -> Run:
    """Run one command as a user; returns its JSON, or its text where it prints none."""

    async def run(*arguments: str, user: str = "admin", fails: bool = False) -> Any:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "OS_AUTH_URL": f"{served.identity_url}/v3",
            **(_signed_in(user) if user else {}),
            "OS_IDENTITY_API_VERSION": "3",
            "PYTHONWARNINGS": "ignore",
        }
        process = await asyncio.create_subprocess_exec(
            client_program(),
            *arguments,
            env=environment,
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 100)
        assert (process.returncode != 0) == fails, err.decode()
        if fails:
            return err.decode()
        return json.loads(out) if "json" in arguments else out.decode()

    return run


async def test_looking_around(openstack: Run, served: ServedNeighbours) -> None:
    issued, catalogue, endpoints, roles = await asyncio.gather(
        openstack("token", "issue", "-f", "json"),
        openstack("catalog", "list", "-f", "json"),
        openstack("endpoint", "list", "-f", "json"),
        openstack("role", "list", "-f", "json"),
    )
    assert issued["project_id"] == served.first.project_ids["admin"]
    assert {entry["Type"] for entry in catalogue} == {"compute", "identity", "image"}
    assert len(endpoints) == 9
    assert {role["Name"] for role in roles} == {"admin", "manager", "member", "reader", "service"}


async def test_projects_and_users(openstack: Run) -> None:
    project = await openstack("project", "create", "--description", "for tests", "new", "-f", "json")
    user = await openstack("user", "create", "--project", "new", "--password", "old", "new", "-f", "json")
    assert user["default_project_id"] == project["id"]
    await openstack("role", "add", "--user", "new", "--project", "new", "member")
    await openstack("user", "set", "--password", "new-password", "new")
    assert (await openstack("token", "issue", "-f", "json", user="new"))["project_id"] == project["id"]
    shown, assigned, refused = await asyncio.gather(
        openstack("project", "show", "new", "-f", "json"),
        openstack("role", "assignment", "list", "--user", "new", "--names", "-f", "json"),
        openstack("user", "list", user="new", fails=True),
    )
    assert shown["description"] == "for tests"
    assert [(entry["Role"], entry["User"], entry["Project"]) for entry in assigned] == [
        ("member", "new@Default", "new@Default")
    ]
    assert "403" in refused
    await openstack("project", "set", "--description", "changed", "new")
    assert (await openstack("project", "show", "new", "-f", "json"))["description"] == "changed"
    passwords = ("--original-password", "new-password", "--password", "newest-password")
    await openstack("user", "password", "set", *passwords, user="new")
    assert (await openstack("user", "show", "new", "-f", "json"))["default_project_id"] == project["id"]
    await openstack("user", "delete", "new")
    await openstack("project", "delete", "new")
    users, projects = await asyncio.gather(
        openstack("user", "list", "-f", "json"), openstack("project", "list", "-f", "json")
    )
    assert {entry["Name"] for entry in users} == {"admin", "demo"}
    assert {entry["Name"] for entry in projects} == {"admin", "demo", "service"}
    assert "401" in await openstack("token", "issue", user="new", fails=True)


async def test_domains_and_groups(openstack: Run) -> None:
    domain = await openstack("domain", "create", "--description", "of tests", "science", "-f", "json")
    assert (domain["name"], domain["enabled"]) == ("science", True)
    _, _, group = await asyncio.gather(
        openstack("user", "create", "--domain", "science", "--password", "new-password", "mary", "-f", "json"),
        openstack("project", "create", "--domain", "science", "physics", "-f", "json"),
        openstack("group", "create", "--domain", "science", "--description", "a", "staff", "-f", "json"),
    )
    await openstack("group", "set", "--domain", "science", "--name", "team", "--description", "b", "staff")
    in_domain = ("--group-domain", "science", "--user-domain", "science", "team", "mary")
    assert await openstack("group", "contains", "user", *in_domain) == ""
    await openstack("group", "add", "user", *in_domain)
    assert "in group" in await openstack("group", "contains", "user", *in_domain)
    shown, groups, of_user, of_group, domains = await asyncio.gather(
        openstack("group", "show", "--domain", "science", "team", "-f", "json"),
        openstack("group", "list", "--domain", "science", "-f", "json"),
        openstack("group", "list", "--user", "mary", "--user-domain", "science", "-f", "json"),
        openstack("user", "list", "--group", group["id"], "--domain", "science", "-f", "json"),
        openstack("domain", "list", "-f", "json"),
    )
    assert (shown["name"], shown["description"], shown["domain_id"]) == ("team", "b", domain["id"])
    assert [one["Name"] for one in groups] == [one["Name"] for one in of_user] == ["team"]
    assert [one["Name"] for one in of_group] == ["mary"]
    assert [one["Name"] for one in domains] == ["Default", "science"]
    await openstack("group", "remove", "user", *in_domain)
    await openstack("group", "delete", "--domain", "science", "team")
    assert "enabled" in await openstack("domain", "delete", "science", fails=True)
    await openstack("domain", "set", "--disable", "--description", "ends", "science")
    ended = await openstack("domain", "show", "science", "-f", "json")
    assert (ended["enabled"], ended["description"]) == (False, "ends")
    await openstack("domain", "delete", "science")
    assert [one["Name"] for one in await openstack("user", "list", "-f", "json")] == ["admin", "demo"]


async def test_roles_and_assignments(openstack: Run) -> None:
    await openstack("domain", "create", "science")
    await openstack("group", "create", "staff")
    role = await openstack("role", "create", "--description", "looks", "auditor", "-f", "json")
    assert (role["name"], role["description"]) == ("auditor", "looks")
    await openstack("role", "set", "--name", "inspector", "auditor")
    assert (await openstack("role", "show", "inspector", "-f", "json"))["id"] == role["id"]
    places = (
        ("--user", "demo", "--project", "admin"),
        ("--group", "staff", "--project", "demo"),
        ("--user", "demo", "--domain", "science"),
        ("--group", "staff", "--domain", "science", "--inherited"),
        ("--user", "demo", "--system", "all"),
        ("--group", "staff", "--system", "all"),
    )
    for place in places:
        await openstack("role", "add", *place, "inspector")
    listed = await openstack("role", "assignment", "list", "--names", "--role", "inspector", "-f", "json")
    assert {
        tuple(one[key] for key in ("User", "Group", "Project", "Domain", "System", "Inherited")) for one in listed
    } == {
        ("demo@Default", "", "admin@Default", "", "", False),
        ("", "staff@Default", "demo@Default", "", "", False),
        ("demo@Default", "", "", "science", "", False),
        ("", "staff@Default", "", "science", "", True),
        ("demo@Default", "", "", "", "all", False),
        ("", "staff@Default", "", "", "all", False),
    }
    by_place = await asyncio.gather(
        *(openstack("role", "assignment", "list", *place, "-f", "json") for place in places)
    )
    assert all(role["id"] in {one["Role"] for one in found} for found in by_place)
    await openstack("group", "add", "user", "staff", "demo")
    effective = ("role", "assignment", "list", "--effective", "--user", "demo", "--project", "demo", "--names")
    assert {one["Role"] for one in await openstack(*effective, "-f", "json")} == {"inspector", "member", "reader"}
    for place in places:
        await openstack("role", "remove", *place, "inspector")
    assert await openstack("role", "assignment", "list", "--role", "inspector", "-f", "json") == []
    implied = await openstack("implied", "role", "list", "-f", "json")
    assert {(one["Prior Role Name"], one["Implied Role Name"]) for one in implied} == {
        ("admin", "manager"), ("manager", "member"), ("member", "reader"),
    }  # fmt: skip
    refused = await openstack("implied", "role", "create", "--implied-role", "reader", "inspector", fails=True)
    assert "403" in refused
    await openstack("role", "delete", "inspector")


async def test_application_credentials(openstack: Run, tmp_path: Path) -> None:
    rules = [{"service": "image", "method": "GET", "path": "/v2/images"}]
    (tmp_path / "rules.json").write_text(json.dumps(rules))
    made = await openstack(
        "application", "credential", "create", "--secret", "a secret", "--role", "reader", "--description", "lists",
        "--expiration", "2199-01-01T00:00:00", "--access-rules", "rules.json", "lists", "-f", "json",
        user="demo",
    )  # fmt: skip
    assert (made["Secret"], made["Unrestricted"]) == ("a secret", False)
    unrestricted = await openstack(
        "application", "credential", "create", "--unrestricted", "free", "-f", "json", user="demo"
    )
    listed, shown, kept = await asyncio.gather(
        openstack("application", "credential", "list", "-f", "json", user="demo"),
        openstack("application", "credential", "show", "lists", "-f", "json", user="demo"),
        openstack("access", "rule", "list", "-f", "json", user="demo"),
    )
    assert [one["Name"] for one in listed] == ["free", "lists"]
    assert shown["Description"] == "lists"
    assert [(one["Service"], one["Method"], one["Path"]) for one in kept] == [("image", "GET", "/v2/images")]
    by_credential = (
        "--os-auth-type", "v3applicationcredential", "--os-application-credential-id", made["ID"],
        "--os-application-credential-secret", "a secret",
    )  # fmt: skip
    assert await openstack(*by_credential, "image", "list", "-f", "json", user="") == []
    assert "401" in await openstack(*by_credential, "image", "create", "new", user="", fails=True)
    rule = kept[0]["ID"]
    assert (await openstack("access", "rule", "show", rule, "-f", "json", user="demo"))["Path"] == "/v2/images"
    assert "belongs" in await openstack("access", "rule", "delete", rule, user="demo", fails=True)
    await openstack("application", "credential", "delete", "lists", unrestricted["ID"], user="demo")
    await openstack("access", "rule", "delete", rule, user="demo")
    assert await openstack("application", "credential", "list", "-f", "json", user="demo") == []


async def test_images(openstack: Run, tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    (tmp_path / "disk.raw").write_bytes(content)
    made = await openstack(
        "image", "create", "--file", "disk.raw", "--disk-format", "raw", "--container-format", "bare",
        "--min-disk", "1", "--property", "os_distro=none", "--tag", "small", "--public", "tiny", "-f", "json",
    )  # fmt: skip
    assert made["status"] == "active"
    await openstack("image", "set", "--name", "small", "--property", "kind=test", "--min-ram", "64", "tiny")
    listed, shown = await asyncio.gather(
        openstack("image", "list", "-f", "json", user="demo"),
        openstack("image", "show", "small", "-f", "json", user="demo"),
    )
    assert [(entry["Name"], entry["Status"]) for entry in listed] == [("small", "active")]
    assert shown["checksum"] == hashlib.md5(content).hexdigest()
    assert (shown["min_disk"], shown["min_ram"]) == (1, 64)
    assert shown["properties"]["os_distro"] == "none"
    assert shown["properties"]["kind"] == "test"
    await openstack("image", "save", "--file", "copy.raw", "small", user="demo")
    assert (tmp_path / "copy.raw").read_bytes() == content
    assert "403" in await openstack("image", "delete", "small", user="demo", fails=True)
    await openstack("image", "delete", "small")
    assert await openstack("image", "list", "-f", "json") == []


async def test_sharing_images(openstack: Run, served: ServedNeighbours, tmp_path: Path) -> None:
    (tmp_path / "disk.raw").write_bytes(b"12345")
    make = ("image", "create", "--disk-format", "raw", "--container-format", "bare", "-f", "json")
    image = (await openstack(*make, "--file", "disk.raw", "--shared", "mine", user="demo"))["id"]
    project = served.first.project_ids["admin"]
    await openstack("image", "add", "project", image, project, user="demo")
    members = await openstack("image", "member", "list", image, "-f", "json", user="demo")
    assert [(one["Member ID"], one["Status"]) for one in members] == [(project, "pending")]
    assert (await openstack("image", "member", "get", image, project, "-f", "json"))["status"] == "pending"
    await openstack("image", "set", "--accept", image)
    shared = ("image", "list", "--shared", "--member-status", "accepted", "-f", "json")
    assert [one["ID"] for one in await openstack(*shared)] == [image]
    await openstack("image", "set", "--reject", image)
    members = await openstack("image", "member", "list", image, "-f", "json", user="demo")
    assert [one["Status"] for one in members] == ["rejected"]
    await openstack("image", "remove", "project", image, project, user="demo")
    assert await openstack("image", "member", "list", image, "-f", "json", user="demo") == []


async def test_changing_images(openstack: Run, served: ServedNeighbours, tmp_path: Path) -> None:
    (tmp_path / "disk.raw").write_bytes(b"12345")
    make = ("image", "create", "--disk-format", "raw", "--container-format", "bare", "-f", "json")
    image = (await openstack(*make, "--file", "disk.raw", "--private", "mine", user="demo"))["id"]
    assert (await openstack("image", "import", "info", "-f", "json", user="demo"))["import-methods"] == []
    await openstack("image", "set", "--deactivate", image, user="demo")
    listed, refused = await asyncio.gather(
        openstack("image", "list", "--status", "deactivated", "-f", "json", user="demo"),
        openstack("image", "save", "--file", "copy.raw", image, user="demo", fails=True),
    )
    assert [one["ID"] for one in listed] == [image]
    assert "Unable to download" in refused
    await openstack("image", "set", "--activate", image, user="demo")
    changes = ("--community", "--protected", "--hidden", "--tag", "kept", "--tag", "gone", "--property", "own=1")
    await openstack("image", "set", *changes, image, user="demo")
    await openstack("image", "unset", "--tag", "gone", "--property", "own", image, user="demo")
    shown, hidden, by_tag = await asyncio.gather(
        openstack("image", "show", image, "-f", "json"),
        openstack("image", "list", "--community", "--hidden", "-f", "json", user="demo"),
        openstack("image", "list", "--tag", "kept", "--hidden", "--long", "-f", "json", user="demo"),
    )
    assert (shown["visibility"], shown["protected"], shown["tags"]) == ("community", True, ["kept"])
    assert "own" not in shown["properties"]
    assert [one["ID"] for one in hidden] == [one["ID"] for one in by_tag] == [image]
    await openstack("image", "set", "--unhidden", "--private", "--unprotected", image, user="demo")
    await openstack("image", "set", "--project", served.first.project_ids["admin"], image)
    assert (await openstack("image", "show", image, "-f", "json"))["owner"] == served.first.project_ids["admin"]
    assert await openstack("image", "list", "-f", "json", user="demo") == []
    web = ("--import", "--uri", "http://127.0.0.1:9/disk.raw")
    refused = await openstack(*make, *web, "from afar", user="demo", fails=True)
    assert "import" in refused
    await openstack("image", "delete", image)
