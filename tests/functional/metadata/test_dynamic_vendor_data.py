"""The operator's services say what a server is told besides, on its config drive and by the metadata service."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from skep.compute.drivers.fake import DRIVES
from skep.config import load
from skep.config.metadata import MetadataSettings
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import http_config, serving_cloud, signed_in
from skep.contracts.loopback import plain_client
from skep.contracts.neighbours.served import address, bound, serving
from skep.domain.errors import Misconfigured
from skep.domain.guest_documents.proof import signature
from skep.neighbours.vendor_data import MAX_BYTES
from skep.processes.vendor_data import vendor_targets
from tests.functional.test_shelving import Shelving

SECRET = "of proxies and of the service"
SAID = {"fqdn": "one.example.org", "token": "sesame"}
DOCUMENT = "openstack/latest/vendor_data2.json"
ALL = ("good", "list", "refuses", "page", "long", "elsewhere", "slow")


class Vendor:
    """Services that answer well and badly, and remember what they were asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self._answers: dict[str, Response] = {
            "good": JSONResponse(SAID),
            "list": JSONResponse([1, 2]),
            "refuses": JSONResponse({"error": "no"}, status_code=500),
            "page": Response("<html>"),
            "long": JSONResponse("x" * MAX_BYTES),
            "elsewhere": RedirectResponse("/good"),
        }
        self.app = Starlette(routes=[Route("/{name}", self._answer, methods=["POST"])])

    async def _answer(self, request: Request) -> Response:
        name = request.path_params["name"]
        self.asked.append((name, json.loads(await request.body())))
        if name == "slow":
            # Until whoever asked has hung up.
            await request.receive()
            return Response()
        return self._answers[name]


class VendorCloud(Shelving):
    """A cloud whose servers are told by such services."""

    vendor: Vendor
    state: Path

    async def read(self, server: dict[str, Any], document: str = DOCUMENT) -> tuple[int, Any]:
        """Return the status and what the metadata service tells a server."""
        assert self.cloud.metadata_url is not None
        headers = {
            "X-Instance-ID": server["id"],
            "X-Tenant-ID": server["tenant_id"],
            "X-Instance-ID-Signature": signature(SECRET, server["id"]),
        }
        async with plain_client(self.cloud.metadata_url) as proxy:
            answer = await proxy.get(f"/{document}", headers=headers)
        return answer.status_code, answer.json()

    async def asked_for(self, name: str, **more: Any) -> str:
        """Ask for a server; return its id."""
        image = (await self.glance("GET", "?name=tiny")).json()["images"][0]["id"]
        body = {"server": {"name": name, "imageRef": image, "flavorRef": "1", "networks": "none", **more}}
        answer = await self.session.ask("POST", "/servers", body, version="2.90")
        assert answer.status_code == 202, answer.text
        uuid: str = answer.json()["server"]["id"]
        return uuid

    async def failed(self, uuid: str) -> dict[str, Any]:
        """Wait until a build has failed."""

        async def is_so() -> bool:
            return (await self.server(uuid)).get("status") == "ERROR"

        await eventually(is_so, "the build fails")
        return await self.server(uuid)

    def drives(self) -> list[Any]:
        """Return what stands on all config drives."""
        return [json.loads(path.read_text()) for path in self.state.rglob(f"{DRIVES}/*/{DOCUMENT}")]


@asynccontextmanager
async def told(root: Path, *names: str, fatal: bool = False, timeout: float = 60.0) -> AsyncIterator[VendorCloud]:
    """Open a cloud with these services. A slow one is waited for, unless `timeout` says for how long."""
    vendor, listener = Vendor(), bound()
    file = root / "vendor.json"
    file.write_text('{"motd": "welcome"}')
    section = MetadataSettings(
        service_metadata_proxy=True,
        metadata_proxy_shared_secret=SECRET,
        port=0,
        vendordata_jsonfile_path=str(file),
        vendordata_dynamic_targets=tuple(f"{name}@{address(listener)}/{name}" for name in names),
        vendordata_dynamic_timeout=timeout,
        vendordata_dynamic_failure_fatal=fatal,
    )
    config = msgspec.structs.replace(http_config(root), metadata=section)
    async with (
        serving((vendor.app, listener)),
        serving_cloud(config, cells=1, hosts=2) as cloud,
        signed_in(cloud) as session,
    ):
        opened = VendorCloud(cloud, session)
        opened.vendor, opened.state = vendor, root
        yield opened


async def test_their_answers_stand_beside_what_all_are_told(tmp_path: Path) -> None:
    async with told(tmp_path, "good", "list") as cloud:
        script = base64.b64encode(b"#!/bin/sh\n").decode()
        uuid = await cloud.asked_for("one", config_drive=True, user_data=script, metadata={"a": "b"})
        server = await cloud.calm(uuid, "ACTIVE")
        wanted = {"static": {"motd": "welcome"}, "good": SAID, "list": [1, 2]}
        assert cloud.drives() == [wanted]
        assert sorted(name for name, _ in cloud.vendor.asked) == ["good", "list"]
        asked = cloud.vendor.asked[0][1]
        assert set(asked.pop("boot-roles").split(",")) == {"admin", "manager", "member", "reader"}
        assert asked == {
            "project-id": server["tenant_id"],
            "instance-id": server["id"],
            "image-id": server["image"]["id"],
            "user-data": script,
            "hostname": "one",
            "metadata": {"a": "b"},
        }
        assert await cloud.read(server, "openstack/latest/meta_data.json") != (200, wanted)
        assert len(cloud.vendor.asked) == 2, "other documents ask nobody"
        for _ in range(3):
            assert await cloud.read(server) == (200, wanted)
        assert len(cloud.vendor.asked) == 4, "an answer is remembered"
        again = cloud.vendor.asked[3][1]
        assert set(again.pop("boot-roles").split(",")) == {"admin", "manager", "member", "reader"}
        assert again == asked, "the metadata service asks as the host does"
        assert await cloud.read(server, "openstack/latest/vendor_data.json") == (200, {"motd": "welcome"})


async def test_one_that_gives_none_holds_up_nothing(tmp_path: Path) -> None:
    async with told(tmp_path, *ALL, timeout=0.5) as cloud:
        server = await cloud.calm(await cloud.asked_for("one", config_drive=True), "ACTIVE")
        for drive in (*cloud.drives(), (await cloud.read(server))[1]):
            # On a machine that is busy a good one may come too late.
            may_be: dict[str, list[Any]] = {"static": [{"motd": "welcome"}], "good": [SAID, {}], "list": [[1, 2], {}]}
            assert set(drive) == {"static", *ALL}
            assert all(answer in may_be.get(name, [{}]) for name, answer in drive.items()), drive


async def test_where_they_are_required_nobody_is_told_less(tmp_path: Path) -> None:
    async with told(tmp_path, "good", "refuses", fatal=True) as cloud:
        server = await cloud.calm(await cloud.asked_for("one"), "ACTIVE")
        status, said = await cloud.read(server)
        assert (status, "refuses cannot be had: it answered 500" in str(said)) == (503, True)
        assert (await cloud.read(server, "openstack/latest/meta_data.json"))[0] == 200
        failed = await cloud.failed(await cloud.asked_for("two", config_drive=True))
        assert "refuses cannot be had" in str(failed["fault"])
        assert cloud.drives() == []


@pytest.mark.parametrize("wrong", ["name", "name@ftp://host", "@http://host", "static@http://host"])
def test_a_target_is_a_name_and_an_address(wrong: str) -> None:
    with pytest.raises(Misconfigured, match="vendordata_dynamic_targets"):
        load(None, {"SKEP_METADATA__VENDORDATA_DYNAMIC_TARGETS": json.dumps([wrong])})
    with pytest.raises(Misconfigured, match="vendordata_dynamic_targets"):
        load(None, {"SKEP_METADATA__VENDORDATA_DYNAMIC_TARGETS": json.dumps(["a@http://one", "a@http://other"])})


def test_a_ca_that_is_not_there_is_named() -> None:
    section = MetadataSettings(
        vendordata_dynamic_targets=("a@http://one",), vendordata_dynamic_ssl_certfile="/no/such/file"
    )
    with pytest.raises(Misconfigured, match="vendordata_dynamic_ssl_certfile: /no/such/file"):
        vendor_targets(section)
    assert vendor_targets(MetadataSettings()) is None
