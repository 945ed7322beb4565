from __future__ import annotations

from pathlib import Path

import pytest

from skep.config import load
from skep.config.metadata import MetadataSettings
from skep.domain.errors import Misconfigured
from skep.processes.vendor_data import MAX_BYTES, vendor_data

GOOD = "x" * 16
WRONG = r"metadata\.vendordata_jsonfile_path: expected a JSON object"


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({"SERVICE_METADATA_PROXY": "true"}, "needs metadata_proxy_shared_secret"),
        ({"SERVICE_METADATA_PROXY": "true", "METADATA_PROXY_SHARED_SECRET": "short"}, "at least 16 characters"),
        ({"FORMER_METADATA_PROXY_SHARED_SECRET": "short"}, "fewer than 16 characters"),
    ],
)
def test_a_secret_that_can_be_guessed_is_refused(settings: dict[str, str], wrong: str) -> None:
    with pytest.raises(Exception, match=wrong):
        load(None, {f"SKEP_METADATA__{name}": value for name, value in settings.items()})


def test_the_secrets_by_which_proxies_sign() -> None:
    assert MetadataSettings().secrets == ()
    both = MetadataSettings(
        service_metadata_proxy=True,
        metadata_proxy_shared_secret=GOOD,
        former_metadata_proxy_shared_secret=GOOD[::-1] + "y",
    )
    assert both.secrets == (GOOD, GOOD + "y")


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'"x"', b"\xff", b'{"a": "' + b"x" * MAX_BYTES + b'"}'])
def test_what_all_servers_are_told_is_an_object_of_bounded_size(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "vendor.json"
    section = MetadataSettings(vendordata_jsonfile_path=str(file))
    with pytest.raises(Misconfigured, match=WRONG):
        vendor_data(section)
    file.write_bytes(content)
    with pytest.raises(Misconfigured, match=WRONG):
        vendor_data(section)
    file.write_bytes(b'{"a": {"b": 1}}')
    assert vendor_data(section) == {"a": {"b": 1}}
    assert vendor_data(MetadataSettings()) == {}
