"""A real Keystone and a real Glance on loopback, for tests beside them: SQLite databases, files of their own.

`scripts/bootstrap neighbours` installs them; `PART` is what a test names that needs them.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import shutil
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
from cryptography.fernet import Fernet

from skep.processes.directory import write_private
from skep_lab.neighbours.programs import PASSWORD, REGION, programs, run, tokens
from skep_lab.neighbours.wsgi import WsgiService

GROUP = "neighbours"
PROGRAMS = programs(GROUP)
PART = str(PROGRAMS / "keystone-manage")
PREPARED = PROGRAMS.parent / "prepared"
"""Databases with their tables and an admin; they hold no address, so that each start gets a copy."""
DATABASES = ("keystone.sqlite", "glance.sqlite")
IMAGE = "cirros"
IMAGE_BYTES = b"skep" * 16_384


class RealNeighbours:
    """Keystone and Glance with Skep's user `skep`, a user `demo` with the role `member`, and one public image."""

    def __init__(self, folder: Path) -> None:
        """Take a folder for databases, keys, images and logs."""
        self.folder = folder
        etc = {"OS_KEYSTONE_CONFIG_DIR": str(folder), "OS_KEYSTONE_CONFIG_FILES": str(folder / "keystone.conf")}
        # SQLite refuses a write of who has read what another wrote since; Keystone does not try again.
        self.keystone = WsgiService(GROUP, "keystone.wsgi.api", folder, etc, threads=1)
        self.glance = WsgiService(GROUP, "glance.wsgi.api", folder, {"OS_GLANCE_CONFIG_DIR": str(folder)})
        self.project_ids: dict[str, str] = {}
        self.image_id = ""

    @property
    def auth_url(self) -> str:
        """Address of Keystone's v3 API."""
        return f"{self.keystone.url}/v3"

    def environment(self, user: str, project: str) -> dict[str, str]:
        """Return what the real client is told of a user."""
        return {
            "OS_AUTH_URL": self.auth_url,
            "OS_IDENTITY_API_VERSION": "3",
            "OS_REGION_NAME": REGION,
            "OS_USERNAME": user,
            "OS_PASSWORD": PASSWORD,
            "OS_PROJECT_NAME": project,
            "OS_USER_DOMAIN_ID": "default",
            "OS_PROJECT_DOMAIN_ID": "default",
        }

    def prepare(self) -> None:
        """Write configurations and keys, copy databases with the first admin. Makes these once; blocks for a while."""
        self.folder.mkdir(mode=0o700)
        keys, credentials = self.folder / "fernet", self.folder / "credential"
        for folder in (keys, credentials, self.folder / "images", self.folder / "staging", self.folder / "tasks"):
            folder.mkdir(mode=0o700)
        for folder in (keys, credentials):
            for number in ("0", "1"):
                write_private(folder / number, Fernet.generate_key())
        (self.folder / "keystone.conf").write_text(self._keystone_conf(keys, credentials))
        (self.folder / "glance-api.conf").write_text(self._glance_conf())
        with (PROGRAMS.parent / "prepared.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not PREPARED.exists():
                self._make_databases()
        for database in DATABASES:
            shutil.copy(PREPARED / database, self.folder / database)
            with contextlib.closing(sqlite3.connect(self.folder / database)) as connection:
                # Readers let writers write; the file keeps it.
                connection.execute("PRAGMA journal_mode = WAL")

    def _make_databases(self) -> None:
        manage = (PROGRAMS / "keystone-manage", "--config-file", str(self.folder / "keystone.conf"))
        run(*manage, "db_sync")
        run(*manage, "bootstrap", "--bootstrap-region-id", REGION, "--bootstrap-password", PASSWORD)
        run(PROGRAMS / "glance-manage", "--config-file", str(self.folder / "glance-api.conf"), "db_sync")
        new = PREPARED.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        for database in DATABASES:
            shutil.copy(self.folder / database, new / database)
        new.rename(PREPARED)

    async def populate(self, endpoints: Mapping[str, str]) -> None:
        """Make users, the catalogue and the image, with Keystone and Glance running.

        `endpoints` are addresses of other services, by their types.
        """
        async with httpx.AsyncClient(base_url=self.auth_url, timeout=60.0, trust_env=False) as keystone:
            token = await sign_in(keystone, "admin", "admin")
            keystone.headers["X-Auth-Token"] = token
            roles = {role["name"]: role["id"] for role in (await get(keystone, "/roles"))["roles"]}
            for name in ("service", "demo"):
                project = {"name": name, "domain_id": "default"}
                self.project_ids[name] = (await post(keystone, "/projects", {"project": project}))["project"]["id"]
            grants = dict.fromkeys(("skep", "glance", "neutron", "cinder"), ("service", "service", "admin"))
            user_ids = {}
            for user, (project_name, *names) in {**grants, "demo": ("demo", "member")}.items():
                wanted = {"name": user, "domain_id": "default", "password": PASSWORD}
                user_ids[user] = (await post(keystone, "/users", {"user": wanted}))["user"]["id"]
                for role in names:
                    path = f"/projects/{self.project_ids[project_name]}/users/{user_ids[user]}/roles/{roles[role]}"
                    (await keystone.put(path)).raise_for_status()
            # Skep acts in the projects of users, where its user has to be a member.
            everywhere = f"/OS-INHERIT/domains/default/users/{user_ids['skep']}/roles/{roles['member']}"
            (await keystone.put(f"{everywhere}/inherited_to_projects")).raise_for_status()
            for kind, url in {"identity": self.auth_url, "image": self.glance.url, **endpoints}.items():
                service = await self._service(keystone, kind)
                for interface in ("public", "internal"):
                    endpoint = {
                        "service_id": service["id"],
                        "interface": interface,
                        "url": url,
                        "region_id": REGION,
                    }
                    await post(keystone, "/endpoints", {"endpoint": endpoint})
        headers = {"X-Auth-Token": token}
        async with httpx.AsyncClient(
            base_url=self.glance.url, timeout=60.0, headers=headers, trust_env=False
        ) as glance:
            wanted = {
                "name": IMAGE,
                "visibility": "public",
                "disk_format": "raw",
                "container_format": "bare",
            }
            self.image_id = (await post(glance, "/v2/images", wanted))["id"]
            upload = await glance.put(
                f"/v2/images/{self.image_id}/file",
                content=IMAGE_BYTES,
                headers={"Content-Type": "application/octet-stream"},
            )
            upload.raise_for_status()

    async def _service(self, keystone: httpx.AsyncClient, kind: str) -> Any:
        """Return the catalogue's service of a type; Keystone's own is there from the beginning."""
        known = (await get(keystone, f"/services?type={kind}"))["services"]
        if known:
            return known[0]
        return (await post(keystone, "/services", {"service": {"type": kind, "name": kind}}))["service"]

    def _keystone_conf(self, keys: Path, credentials: Path) -> str:
        return f"""
[DEFAULT]
public_endpoint = {self.keystone.url}
[database]
connection = sqlite:///{self.folder}/keystone.sqlite?timeout=60
sqlite_synchronous = false
[token]
provider = fernet
[fernet_tokens]
key_repository = {keys}
[fernet_receipts]
key_repository = {keys}
[credential]
key_repository = {credentials}
[identity]
password_hash_rounds = 4
[cache]
enabled = true
backend = dogpile.cache.memory
"""

    def _glance_conf(self) -> str:
        return f"""
[DEFAULT]
enabled_backends = file:file
worker_self_reference_url = {self.glance.url}
[database]
connection = sqlite:///{self.folder}/glance.sqlite?timeout=60
sqlite_synchronous = false
{tokens(self.auth_url, "glance")}service_type = image
[paste_deploy]
flavor = keystone
config_file = {PROGRAMS.parent / "etc" / "glance" / "glance-api-paste.ini"}
[glance_store]
default_backend = file
[file]
filesystem_store_datadir = {self.folder}/images
[os_glance_staging_store]
filesystem_store_datadir = {self.folder}/staging
[os_glance_tasks_store]
filesystem_store_datadir = {self.folder}/tasks
[oslo_concurrency]
lock_path = {self.folder}
[oslo_messaging_notifications]
driver = noop
"""


@asynccontextmanager
async def real_neighbours(folder: Path, compute_url: str) -> AsyncIterator[RealNeighbours]:
    """Run both for the length of a block, with `compute_url` in the catalogue."""
    services = RealNeighbours(folder)
    await asyncio.to_thread(services.prepare)
    try:
        async with asyncio.TaskGroup() as starting:
            starting.create_task(services.keystone.start())
            starting.create_task(services.glance.start())
        await services.populate({"compute": compute_url})
        yield services
    finally:
        for service in (services.glance, services.keystone):
            await asyncio.to_thread(service.stop)


async def sign_in(keystone: httpx.AsyncClient, user: str, project: str) -> str:
    """Return a token of a user for a project."""
    domain = {"id": "default"}
    password = {"user": {"name": user, "password": PASSWORD, "domain": domain}}
    body = {
        "auth": {
            "identity": {"methods": ["password"], "password": password},
            "scope": {"project": {"name": project, "domain": domain}},
        }
    }
    answer = await keystone.post("/auth/tokens", json=body)
    answer.raise_for_status()
    return str(answer.headers["X-Subject-Token"])


async def get(client: httpx.AsyncClient, path: str) -> Any:
    """Return what a service answers to a GET."""
    answer = await client.get(path)
    answer.raise_for_status()
    return msgspec.json.decode(answer.content)


async def post(client: httpx.AsyncClient, path: str, body: Any) -> Any:
    """Return what a service answers to a POST. Raises AssertionError with its words where it refuses."""
    answer = await client.post(path, json=body)
    assert answer.is_success, (path, answer.status_code, answer.text)
    return msgspec.json.decode(answer.content)
