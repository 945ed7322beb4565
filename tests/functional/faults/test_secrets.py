"""Passwords, injected files and tokens: not on disk, not in messages, not in logs; and the sealed copy goes too."""

from __future__ import annotations

import base64
import io
import sqlite3
import stat
from pathlib import Path

import msgspec
import pytest

from skep.compute.drivers.contents import GuestContents, GuestFile
from skep.compute.drivers.fake import INSIDES
from skep.config.compute import FakeFailure
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import http_config, serving_cloud, signed_in
from skep.processes.all_in_one import AllInOneCloud
from skep.telemetry import logs
from skep.transport import codec

PASSWORD = "correct-horse-battery-staple"
NEXT = "four-other-common-words"
CONTENT = "the-content-of-an-injected-file"


def everywhere(cloud: AllInOneCloud) -> bytes:
    """Return every byte of the state directory but the keys, the clients' own file and what is inside guests."""
    root = cloud.directory.root
    files = [
        path
        for path in root.rglob("*")
        if path.is_file() and path.parent != cloud.directory.keys and path.parent.name != INSIDES
    ]
    return b"".join(path.read_bytes() for path in files if path != cloud.clouds_yaml)


def sealed(cloud: AllInOneCloud) -> int:
    """Return how many rows still hold sealed secrets."""
    total = 0
    for path in cloud.directory.databases.glob("*.db"):
        table = "build_requests" if path.stem == "api" else "instances"
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        total += connection.execute(f"SELECT count(*) FROM {table} WHERE secrets IS NOT NULL").fetchone()[0]
        connection.close()
    return total


@pytest.mark.parametrize("ends", ["ACTIVE", "ERROR"])
async def test_secrets_are_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    failures = [FakeFailure(operation="spawn", error="ImageUnacceptable")] if ends == "ERROR" else []
    said = io.StringIO()
    sent: list[bytes] = []
    encode = codec.encode

    def recording(*arguments: object) -> bytes:
        data = encode(*arguments)  # type: ignore[arg-type]
        sent.append(data)
        return data

    monkeypatch.setattr(codec, "encode", recording)
    logs.configure("debug", "json", said)
    async with serving_cloud(http_config(tmp_path, failures=failures)) as cloud, signed_in(cloud) as session:
        answer = await session.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": session.token})
        contents = base64.b64encode(CONTENT.encode()).decode()
        body = {
            "name": "secret",
            "imageRef": answer.json()["images"][0]["id"],
            "flavorRef": "1",
            "adminPass": PASSWORD,
            "personality": [{"path": "/etc/secret", "contents": contents}],
        }
        made = await session.ask("POST", "/servers", {"server": body})
        assert made.status_code == 202, made.text
        assert made.json()["server"]["adminPass"] == PASSWORD

        async def settled() -> bool:
            shown = await session.ask("GET", f"/servers/{made.json()['server']['id']}")
            return bool(shown.json()["server"]["status"] == ends)

        await eventually(settled, f"the server is {ends}")
        assert sealed(cloud) == 0
        inside = list(cloud.directory.root.glob(f"hosts/*/*/{INSIDES}/*"))
        if ends == "ACTIVE":
            (guest,) = inside
            assert stat.S_IMODE(guest.stat().st_mode) == 0o600
            assert stat.S_IMODE(guest.parent.stat().st_mode) == 0o700
            kept = msgspec.json.decode(guest.read_bytes(), type=GuestContents)
            assert kept.admin_password == PASSWORD
            assert kept.files == (GuestFile(path="/etc/secret", contents=CONTENT.encode()),)
            uuid = made.json()["server"]["id"]
            change = {"changePassword": {"adminPass": NEXT}}
            assert (await session.ask("POST", f"/servers/{uuid}/action", change)).status_code == 202
            await eventually(settled, "the password is changed")
            kept = msgspec.json.decode(guest.read_bytes(), type=GuestContents)
            assert (kept.admin_password, len(kept.files)) == (NEXT, 1)
            await session.ask("DELETE", f"/servers/{made.json()['server']['id']}")

            async def gone() -> bool:
                return not guest.exists()

            await eventually(gone, "what was inside goes with the guest")
        else:
            assert inside == []
        disk, messages, lines = everywhere(cloud), b"".join(sent), said.getvalue().encode()
        for secret in (PASSWORD, NEXT, CONTENT, contents, session.token):
            assert secret.encode() not in disk
            assert secret.encode() not in messages
            assert secret.encode() not in lines
