"""Which cloud is meant, where clouds.yaml or the environment says it plainly: read without the OpenStack SDK.

Importing the SDK takes longer than most commands. What is not plain (profiles, files of secrets, other ways to sign
in, proxies) is left to it: the functions here answer None.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from skep.domain.decoding import convert

SUFFIXES = (".yaml", ".yml", ".json")
PASSWORD = frozenset(
    (
        "auth_url",
        "username",
        "user_id",
        "password",
        "user_domain_name",
        "user_domain_id",
        "project_name",
        "project_id",
        "project_domain_name",
        "project_domain_id",
    )
)
WAYS: dict[str, frozenset[str]] = {
    "password": PASSWORD,
    "v3password": PASSWORD,
    "v3applicationcredential": frozenset(("auth_url", "application_credential_id", "application_credential_secret")),
    "admin_token": frozenset(("endpoint", "token")),
}
"""Ways to sign in -> what may be said of each."""
VARIABLES = frozenset((*PASSWORD, "auth_type", "region_name", "interface", "cacert", "identity_api_version"))
"""What OS_* variables may say, in lower case."""
NAMING = frozenset(("OS_CLOUD", "OS_CLIENT_CONFIG_FILE"))
"""Variables that say which entry of which file is meant."""


class PlainCloud(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cloud and how to sign in to it."""

    auth: dict[str, str]
    auth_type: str = "password"
    region_name: str = ""
    interface: str = "public"
    identity_api_version: int | str = 3
    verify: bool = True
    cacert: str = ""
    compute_endpoint_override: str = ""


def plain_cloud(cloud: str | None, environ: Mapping[str, str], ours: Path | None, default: str) -> PlainCloud | None:
    """Return the cloud that is meant; None where that is for the SDK to say.

    `ours`: the file of the state directory, if nothing else names a cloud; `default`: the entry that is meant there.
    """
    said = {name for name, value in environ.items() if name.startswith("OS_") and value} - NAMING
    named = cloud or environ.get("OS_CLOUD")
    if ours is not None:
        found = None if said else _entry(_clouds(ours), cloud or default)
    elif named:
        found = None if said else _entry(_clouds(_file(environ)), named)
    else:
        found = _of_variables({name: environ[name] for name in said})
    return found if found is not None and _is_plain(found, environ) else None


def _file(environ: Mapping[str, str]) -> Path | None:
    """Return the file that the SDK would read; None where there is none, or one of secrets beside it."""
    home = Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    folders = (Path(), home / "openstack", Path("/etc/xdg/openstack"), Path("/etc/openstack"))
    if any((folder / f"secure{suffix}").exists() for folder in folders for suffix in SUFFIXES):
        return None
    named = environ.get("OS_CLIENT_CONFIG_FILE")
    files = [folder / f"clouds{suffix}" for folder in folders for suffix in SUFFIXES]
    return next((file for file in ([Path(named)] if named else []) + files if file.exists()), None)


def _clouds(file: Path | None) -> Any:
    """Return the entries of a file; None where it is in no form that is known."""
    try:
        content = b"" if file is None else file.read_bytes()
    except OSError:
        return None
    try:
        document = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = _yaml(content)
    return document.get("clouds") if isinstance(document, dict) else None


def _yaml(content: bytes) -> Any:
    try:
        import yaml
    except ImportError:
        return None
    try:
        return yaml.safe_load(content)
    except yaml.YAMLError:
        return None


def _entry(clouds: Any, name: str) -> PlainCloud | None:
    entry = clouds.get(name) if isinstance(clouds, dict) else None
    if not isinstance(entry, dict):
        return None
    try:
        return convert({str(key).replace("-", "_"): value for key, value in entry.items()}, PlainCloud)
    except msgspec.ValidationError:
        return None


def _of_variables(variables: Mapping[str, str]) -> PlainCloud | None:
    said = {name.removeprefix("OS_").lower(): value for name, value in variables.items()}
    if not said or not said.keys() <= VARIABLES:
        return None
    auth = {key: value for key, value in said.items() if key in PASSWORD}
    return _entry({"": {"auth": auth, **{key: value for key, value in said.items() if key not in PASSWORD}}}, "")


def _is_plain(cloud: PlainCloud, environ: Mapping[str, str]) -> bool:
    auth = cloud.auth
    if cloud.auth_type not in WAYS or not auth.keys() <= WAYS[cloud.auth_type] or "," in cloud.region_name:
        return False
    url = auth.get("endpoint" if cloud.auth_type == "admin_token" else "auth_url", "")
    if urlsplit(url).scheme not in {"http", "https"} or _goes_by_proxy(url) or str(cloud.identity_api_version) != "3":
        return False
    if cloud.auth_type == "admin_token":
        return bool(auth.get("token"))
    # Another version, or none, is found by asking the service.
    if not url.rstrip("/").endswith("/v3") or environ.get("OS_TOKEN"):
        return False
    if cloud.auth_type == "v3applicationcredential":
        return bool(auth.get("application_credential_id") and auth.get("application_credential_secret"))
    return _names(auth, "user", "username") and _names(auth, "project", "project_name")


def _names(auth: Mapping[str, str], noun: str, name: str) -> bool:
    """Tell whether a user or project is said by its id, or by its name and domain."""
    domain = auth.get(f"{noun}_domain_name") or auth.get(f"{noun}_domain_id")
    return bool(auth.get(f"{noun}_id") or (auth.get(name) and domain))


def _goes_by_proxy(url: str) -> bool:
    parts = urlsplit(url)
    proxies = urllib.request.getproxies()
    there = parts.scheme in proxies or "all" in proxies
    return there and not urllib.request.proxy_bypass(parts.hostname or "")
