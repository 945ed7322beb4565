"""What clouds.yaml and the environment say plainly is read as the SDK reads it; all else is left to the SDK."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from openstack import config as sdk

from skep.cli.plain_clouds import plain_cloud

pytestmark = pytest.mark.filterwarnings("ignore:Support for InfluxDB")  # the SDK says so whatever is asked

URL = "https://cloud.example:5000/v3"
USER = {"auth_url": URL, "username": "u", "password": "p", "user_domain_name": "Default"}
PROJECT = {**USER, "project_name": "one", "project_domain_name": "Default"}

PLAIN: dict[str, dict[str, Any]] = {
    "by names": {"auth": PROJECT, "region_name": "RegionOne", "identity_api_version": 3},
    "by ids": {
        "auth": {"auth_url": URL, "user_id": "u1", "password": "p", "project_id": "p1"},
        "interface": "internal",
    },
    "own authority": {"auth": PROJECT, "cacert": "/etc/ca.pem", "verify": True, "identity_api_version": "3"},
    "dashes": {"auth": PROJECT, "region-name": "RegionTwo", "auth-type": "password"},
    "elsewhere": {"auth": PROJECT, "compute_endpoint_override": "https://compute.example/v2.1"},
}
OTHER: dict[str, dict[str, Any]] = {
    "profile": {"profile": "vexxhost", "auth": PROJECT},
    "other key": {"auth": PROJECT, "compute_api_version": "2.90"},
    "no version": {"auth": {**PROJECT, "auth_url": "https://cloud.example:5000"}},
    "old version": {"auth": {**PROJECT, "auth_url": "https://cloud.example:5000/v2.0"}},
    "no domain": {"auth": {key: value for key, value in PROJECT.items() if "domain" not in key}},
    "no project": {"auth": USER},
    "second factor": {"auth": {**PROJECT, "passcode": "123456"}, "auth_type": "v3multifactor"},
    "two regions": {"auth": PROJECT, "region_name": "one,two"},
    "certificate": {"auth": PROJECT, "cert": "/etc/me.pem"},
    "not a mapping": {"auth": ["x"]},
    "no text": {"auth": {**PROJECT, "password": 5}},
}


@pytest.fixture(autouse=True)
def environ(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    for name in [*os.environ]:
        if name.startswith("OS_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return {"XDG_CONFIG_HOME": str(tmp_path / "config")}


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_plain_entries_are_read_as_the_sdk_does(
    name: str, suffix: str, environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / f"clouds.{suffix}").write_text(json.dumps({"clouds": {"it": PLAIN[name]}}))
    found = plain_cloud("it", environ, None, "skep")
    region = sdk.OpenStackConfig(config_files=[str(tmp_path / f"clouds.{suffix}")]).get_one("it")
    assert found is not None
    assert found.auth == {key: value for key, value in region.auth.items() if value is not None}
    told = region.config
    assert (found.region_name, found.interface) == (told.get("region_name") or "", told.get("interface", "public"))
    assert found.compute_endpoint_override == told.get("compute_endpoint_override", "")
    assert (found.verify, found.cacert or None) == (told["verify"], told["cacert"])


@pytest.mark.parametrize("name", OTHER)
def test_whatever_else_there_is_is_for_the_sdk(name: str, environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "clouds.yaml").write_text(json.dumps({"clouds": {"it": OTHER[name]}}))
    assert plain_cloud("it", environ, None, "skep") is None


def test_yaml_is_read(environ: dict[str, str], tmp_path: Path) -> None:
    auth = "".join(f"      {key}: {value}\n" for key, value in PROJECT.items())
    (tmp_path / "clouds.yaml").write_text(f"clouds:\n  it:\n    auth:\n{auth}")
    found = plain_cloud(None, {**environ, "OS_CLOUD": "it"}, None, "skep")
    assert found is not None
    assert found.auth == PROJECT
    (tmp_path / "clouds.yaml").write_text("clouds: [")
    assert plain_cloud("it", environ, None, "skep") is None


def test_variables_are_read_as_the_sdk_does(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {**PROJECT, "region_name": "RegionOne"}.items():
        monkeypatch.setenv(f"OS_{key.upper()}", value)
    told = sdk.OpenStackConfig().get_one()
    found = plain_cloud(None, {**environ, **os.environ}, None, "skep")
    assert found is not None
    assert (found.auth, found.region_name) == (told.auth, told.region_name)
    assert plain_cloud(None, {**environ, **os.environ, "OS_PROFILE": "x"}, None, "skep") is None


def test_files_of_secrets_and_proxies_are_for_the_sdk(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "clouds.yaml").write_text(json.dumps({"clouds": {"it": PLAIN["by names"]}}))
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    assert plain_cloud("it", environ, None, "skep") is None
    monkeypatch.setenv("no_proxy", "cloud.example")
    assert plain_cloud("it", environ, None, "skep") is not None
    (tmp_path / "secure.yaml").write_text("clouds: {}")
    assert plain_cloud("it", environ, None, "skep") is None


def test_the_file_of_the_state_directory_is_meant_where_nothing_else_is(
    environ: dict[str, str], tmp_path: Path
) -> None:
    ours = tmp_path / "ours.yaml"
    ours.write_text(json.dumps({"clouds": {"skep": PLAIN["by names"], "skep-demo": PLAIN["by ids"]}}))
    chosen = [plain_cloud(cloud, environ, ours, "skep") for cloud in (None, "skep-demo", "another")]
    assert [None if one is None else one.auth for one in chosen] == [PROJECT, PLAIN["by ids"]["auth"], None]
