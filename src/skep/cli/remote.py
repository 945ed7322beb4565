"""A running cloud as the user's clouds.yaml and OS_* variables name it: its compute API and our own beside it."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import click

from skep.cli.failures import NEW_PASSWORD, Failed, Refused
from skep.cli.output import progress

MICROVERSION = "2.96"
"""Of our own requests to the compute API."""
TIMEOUT = 60.0
"""Seconds; an audit of a large cloud takes some."""
FORBIDDEN = 403
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


class Answered(Failed):
    """An API answered with an error."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Remote:
    """The HTTP APIs of a running cloud, as the signed-in user."""

    def __init__(self, session: Any, endpoint: str) -> None:
        self._session = session
        self._sees_all = True
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

    def readiness(self) -> tuple[bool, list[str], list[str]]:
        """Return whether the cloud says that it is ready, what it lacks, and which cells get no servers."""
        body = self._answer("GET", f"{self.origin}/readyz", None, {}).json()
        reasons, warnings = ([str(one) for one in body.get(key, ())] for key in ("reasons", "warnings"))
        return bool(body["ready"]), reasons, warnings

    def server_id(self, wanted: str, *, deleted: bool = False) -> str:
        """Return the id of a server by its id or name, with `deleted` of the newest deleted one if no other has it.

        Raises Failed when none or several have the name.
        """
        from skep.domain.ids import is_uuid

        if is_uuid(wanted):
            return wanted
        found = self._named(wanted)
        if not found and deleted:
            found = self._named(wanted, deleted="1")[:1]
        if not found:
            raise Failed(f"there is no server with the name or id {wanted}")
        if len(found) > 1:
            raise Failed(
                f"{len(found)} servers are named {wanted}; say which by its id: "
                + ", ".join(one["id"] for one in found)
            )
        return str(found[0]["id"])

    def _named(self, name: str, **query: str) -> list[dict[str, Any]]:
        """Return the servers with this very name, newest first: of all projects for whom may see them."""
        found = self.of_all_projects("/servers", {"name": f"^{re.escape(name)}$", **query}).get("servers", [])
        # Who may not ask for deleted ones is shown the living.
        return found if "deleted" not in query or self._sees_all else []

    def of_all_projects(self, path: str, query: Mapping[str, str]) -> Any:
        """Read a list of all projects, or of the own one for who may not see others'. Raises Failed as `compute`."""
        if self._sees_all:
            try:
                return self.compute(f"{path}?{urlencode({**query, 'all_tenants': '1'})}")
            except Answered as error:
                if error.status != FORBIDDEN:
                    raise
                self._sees_all = False
        return self.compute(f"{path}?{urlencode(query)}")

    @property
    def sees_all(self) -> bool:
        """Whether the last list of all projects was one."""
        return self._sees_all

    def _ask(self, method: str, url: str, body: Any, headers: dict[str, str]) -> Any:
        response = self._answer(method, url, body, headers)
        if response.status_code >= 400:
            raise Answered(_reason(response), response.status_code)
        return response.json()

    def _answer(self, method: str, url: str, body: Any, headers: dict[str, str]) -> Any:
        from keystoneauth1 import exceptions

        more = {} if body is None else {"json": body}
        try:
            return self._session.request(url, method, headers=headers, raise_exc=False, timeout=TIMEOUT, **more)
        except exceptions.ClientException as error:
            raise Failed(_unreached(error, url)) from error


def meant_elsewhere(cloud: str | None, state: Path, config_file: Path | None = None) -> str | None:
    """Return where the cloud that is meant is, if it is not the one whose state directory this is."""
    if cloud is None and not names_a_cloud(os.environ):
        return None
    from skep.processes.seeds import addresses_in

    try:
        auth = _region(cloud, config_file).auth
    except Refused as error:
        return error.message
    url = str(auth.get("auth_url") or auth.get("endpoint"))
    return None if url in addresses_in(state / "clouds.yaml") else url


def connect(cloud: str | None, config_file: Path | None = None) -> Remote:
    """Sign in to the cloud that the environment names and find its compute API.

    Raises Refused when it does not say which, Failed when it cannot be reached or does not let us in.
    """
    with progress("Signing in to the cloud"):
        return _connect(cloud, config_file)


def _connect(cloud: str | None, config_file: Path | None) -> Remote:
    region = _region(cloud, config_file)
    if region.auth.get("username") and not region.auth.get("password"):
        raise Refused(f"nobody says the password of {region.auth['username']}; {NEW_PASSWORD}")
    from keystoneauth1 import exceptions
    from openstack import exceptions as sdk

    try:
        session = region.get_session()
    except (sdk.ConfigException, exceptions.MissingRequiredOptions, exceptions.NoMatchingPlugin) as error:
        raise _which(error) from error
    try:
        endpoint = region.get_session_endpoint("compute")
    except exceptions.ClientException as error:
        raise Failed(_unreached(error, str(region.auth.get("auth_url", region.name)))) from error
    if not endpoint:
        raise Failed("the cloud's catalogue names no compute API")
    return Remote(session, endpoint)


def _region(cloud: str | None, config_file: Path | None) -> Any:
    """Return the entry of the cloud that is meant: in the state directory's file where nothing else is named.

    Raises Refused when there is none.
    """
    try:
        from keystoneauth1 import exceptions
        from openstack import config as cloud_config
        from openstack import exceptions as sdk
    except ImportError as error:
        raise Refused(f"{error.name} is not installed: this command needs openstacksdk") from error
    logging.getLogger("keystoneauth").setLevel(logging.ERROR)  # what it warns of we say ourselves, in one line
    file = state_clouds_yaml(os.environ, config_file)
    try:
        if file is not None:
            ours = cloud_config.OpenStackConfig(config_files=[str(file)])
            if cloud is None or cloud in ours.get_cloud_names():
                return ours.get_one(cloud or STATE_CLOUD)
        return cloud_config.OpenStackConfig().get_one(cloud)
    except (sdk.ConfigException, exceptions.MissingRequiredOptions, exceptions.NoMatchingPlugin) as error:
        raise _which(error) from error


def _which(error: Exception) -> Refused:
    return Refused(f"which cloud? {error} (set OS_CLOUD, or run where `skep up` keeps its state)")


def _unreached(error: Exception, url: str) -> str:
    """Say in one line why nobody answered, or did not let us in."""
    from keystoneauth1 import exceptions

    if isinstance(error, exceptions.ConnectTimeout):
        return f"{url} does not answer within {TIMEOUT:g} s"
    if isinstance(error, exceptions.SSLError):
        return f"{url}: its certificate is not accepted: {error}"
    if isinstance(error, exceptions.ConnectFailure):
        return f"nothing answers at {url}: is the cloud running?"
    if isinstance(error, exceptions.Unauthorized):
        return f"{url} does not let us in: user or password is not right"
    return f"{url}: {error}"


def _reason(response: Any) -> str:
    """Return what an error answer says, whichever API it came from."""
    try:
        (inner,) = response.json().values()
        return f"{inner['message']} ({response.status_code})"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{response.url} answered {response.status_code}"
