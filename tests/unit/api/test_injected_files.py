"""Files that users want inside their servers: whatever the API takes, the host that makes the guest can read."""

from __future__ import annotations

import msgspec
import pytest

from skep.api.creating.contents import InjectedFile, Secrets, check_limits, injected_files
from skep.api.schemas.fields import fields
from skep.api.schemas.servers import PERSONALITY
from skep.api.schemas.shared import asked
from skep.api.schemas.validation import Body
from skep.compute.drivers.contents import GuestContents
from skep.domain.decoding import json_decoder

BODY = Body(fields(asked("personality", PERSONALITY)))
LIMITS = {
    "metadata_items": 1,
    "injected_files": 5,
    "injected_file_path_bytes": 255,
    "injected_file_content_bytes": 10240,
}


@pytest.mark.parametrize(
    ("sent", "means"),
    [
        ("bm8gYmFzZTY0", b"no base64"),
        ("bm8gYmFz\nZTY0\n", b"no base64"),
        ("bm8gYmFz\r\nZTY0", b"no base64"),
        ("bm8g YmFzZTY0", b"no base64"),
        ("bm8gYmFz\u00a0ZTY0", b"no base64"),
        ("QUJD=", b"ABC"),
        ("QUI=", b"AB"),
        ("", b""),
    ],
)
def test_hosts_read_what_the_api_takes(sent: str, means: bytes) -> None:
    files = injected_files(BODY.read({"personality": [{"path": "/a", "contents": sent}]}, 1))
    check_limits({}, files, LIMITS)
    sealed = msgspec.json.encode(Secrets(admin_password="sesame", files=files))
    [inside] = json_decoder(GuestContents).decode(sealed).files
    assert (inside.path, inside.contents) == ("/a", means)


def test_files_without_contents_are_empty() -> None:
    assert injected_files({"personality": [{"path": "/a"}]}) == (InjectedFile(path="/a", contents=""),)
