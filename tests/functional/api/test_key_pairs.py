from __future__ import annotations

import base64
import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_ssh_public_key,
    pkcs12,
)

from skep.api.public_keys import MAX_PUBLIC_KEY
from skep.api.services import ApiSettings, QuotaDefaults
from skep_lab.compute_api.api import ApiUnderTest, api_under_test
from tests.support.public_keys import certificate, ssh_key

PATH = "/os-keypairs"
KEY = ssh_key("me@here")
ALWAYS = {"name", "public_key", "fingerprint"}


async def make(api: ApiUnderTest, version: str | None = None, token: str = "member", **body: Any) -> Any:
    return await api.ask("POST", PATH, {"keypair": {"name": "mine", **body}}, token=token, version=version)


def md5(key: str) -> str:
    return hashlib.md5(base64.b64decode(key.split()[1])).hexdigest()


@pytest.mark.parametrize(
    ("version", "created", "deleted", "more"),
    [
        ("2.1", 200, 202, set()),
        ("2.2", 201, 204, {"type"}),
        ("2.92", 201, 204, {"type"}),
        ("2.104", 201, 204, {"type"}),
    ],
)
async def test_a_key_that_is_brought(
    api: ApiUnderTest, version: str, created: int, deleted: int, more: set[str]
) -> None:
    answer = await make(api, version, public_key=KEY)
    assert answer.status_code == created
    made = answer.json()["keypair"]
    assert set(made) == ALWAYS | more | {"user_id"}
    assert (made["name"], made["public_key"], made["user_id"]) == ("mine", KEY, "member")
    assert made["fingerprint"].replace(":", "") == md5(KEY)
    again = await make(api, version, public_key=ssh_key())
    assert (again.status_code, again.json()["conflictingRequest"]["message"]) == (
        409,
        "Key pair 'mine' already exists.",
    )
    listed = await api.good("GET", PATH, token="member", version=version)
    assert listed == {"keypairs": [{"keypair": {key: made[key] for key in ALWAYS | more}}]}
    shown = (await api.good("GET", f"{PATH}/mine", token="member", version=version))["keypair"]
    assert set(shown) == set(made) | {"id", "created_at", "deleted", "deleted_at", "updated_at"}
    assert (shown["deleted"], shown["deleted_at"], shown["updated_at"]) == (False, None, None)
    assert isinstance(shown["id"], int)
    assert (await api.ask("DELETE", f"{PATH}/mine", token="member", version=version)).status_code == deleted
    for method in ("GET", "DELETE"):
        gone = await api.ask(method, f"{PATH}/mine", token="member", version=version)
        assert (gone.status_code, gone.json()["itemNotFound"]["message"]) == (
            404,
            "Keypair mine not found for user member",
        )


async def test_a_generated_key_is_one(api: ApiUnderTest) -> None:
    made = (await make(api, "2.91")).json()["keypair"]
    assert made["type"] == "ssh"
    private = load_pem_private_key(made["private_key"].encode(), None)
    theirs = private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    brought = load_ssh_public_key(made["public_key"].encode())
    assert brought.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) == theirs
    assert made["fingerprint"].replace(":", "") == md5(made["public_key"])
    assert "private_key" not in (await api.good("GET", f"{PATH}/mine", token="member"))["keypair"]
    refused = await make(api, "2.92", name="other")
    assert refused.status_code == 400
    assert "public_key" in refused.json()["badRequest"]["message"]


async def test_certificates(api: ApiUnderTest) -> None:
    pem = certificate()
    made = (await make(api, "2.2", type="x509", public_key=pem)).json()["keypair"]
    fingerprint = x509.load_pem_x509_certificate(pem.encode()).fingerprint(hashes.SHA1())
    assert (made["type"], made["fingerprint"]) == ("x509", fingerprint.hex(":"))
    generated = (await make(api, "2.2", name="other", type="x509")).json()["keypair"]
    certified = x509.load_pem_x509_certificate(generated["public_key"].encode())
    key, archived, _ = pkcs12.load_key_and_certificates(base64.b64decode(generated["private_key"]), None)
    assert archived == certified
    assert key is not None
    assert key.public_key() == certified.public_key()
    for wrong in ({"type": "x509", "public_key": KEY}, {"public_key": pem}, {"type": "pgp", "public_key": KEY}):
        assert (await make(api, "2.2", **{**wrong, "name": "third"})).status_code == 400
    assert (await make(api, "2.1", name="third", type="ssh", public_key=KEY)).status_code == 400


@pytest.mark.parametrize(
    ("version", "name", "status"),
    [
        ("2.1", "a_b-c d9", 200),
        ("2.91", "a@b", 400),
        ("2.91", "a.b", 400),
        ("2.92", "a@b.c_d-e f", 201),
        ("2.92", "a/b", 400),
        ("2.92", " a", 400),
        ("2.1", "a ", 400),
        ("2.1", "", 400),
        ("2.1", "ü", 400),
        ("2.1", "a\n", 400),
        ("2.1", "x" * 255, 200),
        ("2.1", "x" * 256, 400),
        ("2.1", None, 400),
        ("2.1", 7, 400),
    ],
)
async def test_names(api: ApiUnderTest, version: str, name: Any, status: int) -> None:
    answer = await make(api, version, name=name, public_key=KEY)
    assert answer.status_code == status
    if status == 400:
        assert "keypair.name" in answer.json()["badRequest"]["message"]


@pytest.mark.parametrize(
    "wrong",
    ["", "ssh-rsa", "ssh-rsa !!!", "ssh-ed25519 " + "A" * 80, "no key", KEY.replace("ed25519", "rsa"), None, 7, "\0"],
)
async def test_what_is_no_public_key(api: ApiUnderTest, wrong: Any) -> None:
    for version in ("2.1", "2.92"):
        answer = await make(api, version, public_key=wrong)
        assert answer.status_code == 400
        assert "public_key" in answer.json()["badRequest"]["message"] or wrong == "\0"
    assert (await api.good("GET", PATH, token="member"))["keypairs"] == []


async def test_a_public_key_has_a_bound(api: ApiUnderTest) -> None:
    fits = f"{KEY} ".ljust(MAX_PUBLIC_KEY, "x")
    assert (await make(api, public_key=fits)).status_code == 200
    answer = await make(api, name="other", public_key=f"{fits}x")
    assert answer.status_code == 400
    assert f"at most {MAX_PUBLIC_KEY} characters" in answer.json()["badRequest"]["message"]


async def test_pages(api: ApiUnderTest) -> None:
    for name in ("c", "a", "b"):
        await make(api, name=name, public_key=KEY)

    async def names(query: str, version: str = "2.35") -> list[str]:
        body = await api.good("GET", f"{PATH}{query}", token="member", version=version)
        return [one["keypair"]["name"] for one in body["keypairs"]]

    assert await names("") == ["a", "b", "c"]
    assert await names("?limit=2") == ["a", "b"]
    assert await names("?limit=2&marker=b") == ["c"]
    assert await names("?limit=1&marker=b", "2.34") == ["a", "b", "c"]
    page = await api.good("GET", f"{PATH}?limit=1", token="member", version="2.35")
    assert page["keypairs_links"][0]["href"].endswith(f"{PATH}?limit=1&marker=a")
    assert "keypairs_links" not in await api.good("GET", PATH, token="member", version="2.35")
    for query in ("?marker=x", "?limit=x", "?limit=-1"):
        assert (await api.ask("GET", f"{PATH}{query}", token="member", version="2.35")).status_code == 400
    assert (await api.ask("GET", f"{PATH}?x=1", token="member", version="2.74")).status_code == 200
    for path in (f"{PATH}?x=1", f"{PATH}/a?limit=1"):
        assert (await api.ask("GET", path, token="member", version="2.75")).status_code == 400


async def test_they_are_of_users_and_admins_see_all(api: ApiUnderTest) -> None:
    await make(api, "2.10", public_key=KEY)
    for token in ("reader", "other"):
        assert (await api.ask("GET", f"{PATH}/mine", token=token, version="2.10")).status_code == 404
        for path in (f"{PATH}/mine?user_id=member", f"{PATH}?user_id=member"):
            assert (await api.ask("GET", path, token=token, version="2.10")).status_code == 403
        theirs = await make(api, "2.10", token=token, public_key=KEY, user_id="member", name="slipped")
        assert theirs.status_code == 403
        gone = await api.ask("DELETE", f"{PATH}/mine?user_id=member", token=token, version="2.10")
        assert gone.status_code == 403
        assert (await make(api, "2.10", token=token, public_key=KEY)).status_code == 201
    shown = await api.good("GET", f"{PATH}/mine?user_id=member", version="2.10")
    assert shown["keypair"]["user_id"] == "member"
    assert (await api.ask("GET", f"{PATH}/mine?user_id=member", version="2.9")).status_code == 404
    made = await make(api, "2.10", token="admin", name="given", public_key=KEY, user_id="member")
    assert made.json()["keypair"]["user_id"] == "member"
    assert (await make(api, "2.9", token="admin", name="none", public_key=KEY, user_id="member")).status_code == 400
    names = [one["keypair"]["name"] for one in (await api.good("GET", PATH, token="member"))["keypairs"]]
    assert names == ["given", "mine"]
    assert (await api.ask("DELETE", f"{PATH}/given?user_id=member", version="2.10")).status_code == 204


async def test_quota(tmp_path: Path) -> None:
    async with api_under_test(tmp_path, settings=ApiSettings(quotas=QuotaDefaults(key_pairs=1))) as api:
        assert (await make(api, public_key=KEY)).status_code == 200
        for body in ({"public_key": KEY}, {}):
            response = await make(api, name="two", **body)
            assert response.status_code == 403
            assert response.json()["forbidden"]["message"] == "Quota exceeded, too many key pairs."
        assert (await make(api, token="reader", public_key=KEY)).status_code == 200
        limits = await api.good("GET", "/limits", token="member")
        assert limits["limits"]["absolute"]["maxTotalKeypairs"] == 1


async def test_notifications(api: ApiUnderTest) -> None:
    heard: list[tuple[str, Any]] = []
    api.app.services = dataclasses.replace(
        api.services, tell=lambda name, payload, _context: heard.append((name, payload["nova_object.data"]))
    )
    await make(api, public_key=KEY)
    await make(api, name="two")
    await api.ask("DELETE", f"{PATH}/mine", token="member")
    assert [name for name, _ in heard] == [
        f"keypair.{what}.{moment}" for what in ("import", "create", "delete") for moment in ("start", "end")
    ]
    assert heard[0][1] == {
        "user_id": "member",
        "name": "mine",
        "public_key": KEY,
        "fingerprint": heard[0][1]["fingerprint"],
        "type": "ssh",
    }
    assert "PRIVATE" not in repr(heard)
