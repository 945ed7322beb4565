"""`skep config show`: every key once, its origin, no secret."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from skep.config import load, settings
from skep.config.keys import keys_of
from skep.config.provenance import shown
from skep.config.urls import HIDDEN


def test_each_value_says_where_it_came_from(tmp_path: Path) -> None:
    path = tmp_path / "skep.toml"
    path.write_text("[api]\nport = 1\nmax_limit = 5\n[compute.fake]\nvcpus = 2\n[[cells]]\nname = 'a'\n")
    loaded = load(path, {"SKEP_API__PORT": "2"})
    origin = {setting.key: str(setting.source) for setting in settings(loaded.config, loaded.sources)}
    assert origin["api.port"] == "SKEP_API__PORT"
    assert origin["api.max_limit"] == f"{path}:[api]"
    assert origin["compute.fake.vcpus"] == f"{path}:[compute.fake]"
    assert origin["cells"] == f"{path}:[[cells]]"
    assert origin["quota.cores"] == "default"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://skep:hunter2@db/api", f"postgresql://skep:{HIDDEN}@db/api"),
        ("postgresql://skep:hun@ter2@db/api", f"postgresql://skep:{HIDDEN}@db/api"),
        (
            "postgresql://db/api?user=skep&password=hunter2",
            f"postgresql://db/api?user=skep&password={HIDDEN}",
        ),
        ("sqlite:///api.sqlite", "sqlite:///api.sqlite"),
        ("nats://skep:hunter2@n1:4222,nats://n2", f"nats://skep:{HIDDEN}@n1:4222,nats://n2"),
        ("nats://t0ken@n1", f"nats://{HIDDEN}@n1"),
    ],
)
def test_passwords_inside_addresses_are_hidden(url: str, expected: str) -> None:
    loaded = load(None, {"SKEP_DATABASE__API_URL": url, "SKEP_CELLS": f'[{{"name": "a", "database_url": "{url}"}}]'})
    value = {setting.key: setting.value for setting in settings(loaded.config, loaded.sources)}
    assert value["database.api_url"] == expected
    assert value["cells"] == [{"name": "a", "database_url": expected, "transport_url": ""}]


def test_a_key_marked_secret_is_hidden_whole_unless_empty() -> None:
    class Secretive(msgspec.Struct):
        password: Annotated[str, Meta(extra={"hide": "value"})] = ""

    (key,) = keys_of(Secretive)
    assert shown(key, "hunter2") == HIDDEN
    assert shown(key, "") == ""
