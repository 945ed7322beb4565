"""A running cloud as the user's clouds.yaml and OS_* variables name it: its compute API and our own beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import click

from skep.cli.failures import Failed, Refused
from skep.cli.output import progress

MICROVERSION = "2.96"
"""Of our own requests to the compute API."""
TIMEOUT = 60.0
"""Seconds; an audit of a large cloud takes some."""
STATE_CLOUD = "skep"
"""The admin's entry in the state directory's clouds.yaml."""

_NAMING = ("OS_CLOUD", "OS_AUTH_URL", "OS_CLIENT_CONFIG_FILE")

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def cloud_option(command: CommandT) -> CommandT:
    """Give a command `--os-cloud NAME`."""
    option = click.option("--os-cloud", "cloud", metavar="NAME", help="Entry of clouds.yaml; default: OS_CLOUD.")
    return option(command)


def names_a_cloud(environ: Mapping[str, str]) -> bool:
    """Tell whether the environment says which cloud is meant."""
    return any(environ.get(name) for name in _NAMING)


def state_clouds_yaml(environ: Mapping[str, str], config_file: Path | None = None) -> Path | None:
    """Return the file that `skep up` wrote here, if nothing else says which cloud is meant."""
    if names_a_cloud(environ):
        return None
    from skep.config import load

    path = Path(load(config_file, environ).config.state.directory) / "clouds.yaml"
    return path if path.is_file() else None


class Remote:
    """The HTTP APIs of a running cloud, as the signed-in user."""

    def __init__(self, session: Any, endpoint: str) -> None:
        self._session = session
        parts = urlsplit(endpoint)
        self.compute_url = endpoint.rstrip("/")
        self.origin = f"{parts.scheme}://{parts.netloc}"

    def admin(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the admin API. Raises Failed with what it answered when that is no success."""
        return self._ask(method, f"{self.origin}/admin/v1{path}", body, {})

    def compute(self, path: str) -> Any:
        """Read from the compute API. Raises Failed with what it answered when that is no success."""
        headers = {"OpenStack-API-Version": f"compute {MICROVERSION}"}
        return self._ask("GET", path if "://" in path else f"{self.compute_url}{path}", None, headers)

    def readiness(self) -> tuple[bool, list[str]]:
        """Return whether the cloud says that it is ready, and what it lacks."""
        body = self._answer("GET", f"{self.origin}/readyz", None, {}).json()
        return bool(body["ready"]), [str(reason) for reason in body["reasons"]]

    def server_id(self, wanted: str) -> str:
        """Return the id of a server by its id or name. Raises Failed when none or several have the name."""
        from skep.domain.ids import is_uuid

        if is_uuid(wanted):
            return wanted
        found: list[dict[str, Any]] = []
        for query in ("&all_tenants=1", ""):
            answer = self._answer(
                "GET", f"{self.compute_url}/servers?name={quote(f'^{_escape(wanted)}$')}{query}", None, {}
            )
            if answer.status_code == 200:
                found = answer.json()["servers"]
                break
        if not found:
            raise Failed(f"there is no server with the name or id {wanted}")
        if len(found) > 1:
            raise Failed(
                f"{len(found)} servers are named {wanted}; say which by its id: "
                + ", ".join(one["id"] for one in found)
            )
        return str(found[0]["id"])

    def _ask(self, method: str, url: str, body: Any, headers: dict[str, str]) -> Any:
        response = self._answer(method, url, body, headers)
        if response.status_code >= 400:
            raise Failed(_reason(response))
        return response.json()

    def _answer(self, method: str, url: str, body: Any, headers: dict[str, str]) -> Any:
        from keystoneauth1 import exceptions

        more = {} if body is None else {"json": body}
        try:
            return self._session.request(url, method, headers=headers, raise_exc=False, timeout=TIMEOUT, **more)
        except exceptions.ClientException as error:
            raise Failed(f"{url}: {error}") from error


def connect(cloud: str | None, config_file: Path | None = None) -> Remote:
    """Sign in to the cloud that the environment names and find its compute API.

    Raises Refused when it does not say which, Failed when it cannot be reached or does not let us in.
    """
    with progress("Signing in to the cloud"):
        return _connect(cloud, config_file)


def _connect(cloud: str | None, config_file: Path | None) -> Remote:
    try:
        from keystoneauth1 import exceptions
        from openstack import config as cloud_config
        from openstack import exceptions as sdk
    except ImportError as error:
        raise Refused(f"{error.name} is not installed: this command needs openstacksdk") from error
    file = state_clouds_yaml(os.environ, config_file) if cloud is None else None
    try:
        if file is not None:
            region = cloud_config.OpenStackConfig(config_files=[str(file)]).get_one(STATE_CLOUD)
        else:
            region = cloud_config.OpenStackConfig().get_one(cloud)
        session = region.get_session()
    except (sdk.ConfigException, exceptions.MissingRequiredOptions, exceptions.NoMatchingPlugin) as error:
        raise Refused(f"which cloud? {error} (set OS_CLOUD, or run where `skep up` keeps its state)") from error
    try:
        endpoint = region.get_session_endpoint("compute")
    except exceptions.ClientException as error:
        raise Failed(f"cannot sign in to {region.auth.get('auth_url', region.name)}: {error}") from error
    if not endpoint:
        raise Failed("the cloud's catalogue names no compute API")
    return Remote(session, endpoint)


def _escape(name: str) -> str:
    import re

    return re.escape(name)


def _reason(response: Any) -> str:
    """Return what an error answer says, whichever API it came from."""
    try:
        (inner,) = response.json().values()
        return f"{inner['message']} ({response.status_code})"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{response.url} answered {response.status_code}"
