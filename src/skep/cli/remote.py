"""A running cloud as the user's clouds.yaml and OS_* variables name it: its compute API and our own beside it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import urlencode, urlsplit

import click

from skep.cli.failures import NEW_PASSWORD, CommandRefused, Failed
from skep.cli.output import progress
from skep.cli.plain_clouds import plain_cloud

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


class UserSession(Protocol):
    """A signed-in user, who asks APIs."""

    def sign_in(self) -> str:
        """Get a token; return where the compute API is, empty where the catalogue names none. Raises Failed."""
        ...

    def send(self, method: str, url: str, body: Any, headers: dict[str, str]) -> Any:
        """Ask an API; an answer of any status is one. Raises Failed when nobody answers."""
        ...


class Remote:
    """The HTTP APIs of a running cloud, as the signed-in user."""

    def __init__(self, session: UserSession, endpoint: str) -> None:
        self._session = session
        self._sees_all = True
        parts = urlsplit(endpoint)
        self.compute_url = endpoint.rstrip("/")
        self.origin = f"{parts.scheme}://{parts.netloc}"

    def admin(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the admin API. Raises Failed with what it answered when that is no success."""
        return self._ask(method, f"{self.origin}/admin/v1{path}", body, {})

    def compute(self, path: str, *, version: str = MICROVERSION) -> Any:
        """Read from the compute API. Raises Failed with what it answered when that is no success."""
        headers = {"OpenStack-API-Version": f"compute {version}"}
        return self._ask("GET", path if "://" in path else f"{self.compute_url}{path}", None, headers)

    def ask_compute(self, path: str, body: Any) -> Any:
        """Post to the compute API. Raises Failed with what it answered when that is no success."""
        headers = {"OpenStack-API-Version": f"compute {MICROVERSION}"}
        return self._ask("POST", f"{self.compute_url}{path}", body, headers)

    def readiness(self) -> tuple[bool, list[str], list[str]]:
        """Return whether the cloud says that it is ready, what it lacks, and which cells get no servers."""
        body = self._session.send("GET", f"{self.origin}/readyz", None, {}).json()
        reasons, warnings = ([str(one) for one in body.get(key, ())] for key in ("reasons", "warnings"))
        return bool(body["ready"]), reasons, warnings

    def server_id(self, wanted: str, *, deleted: bool = False) -> str:
        """Return the id of a server by its id or name, with `deleted` of a deleted one if no other has it.

        Raises Failed when none or several have the name.
        """
        from skep.domain.ids import is_uuid

        if is_uuid(wanted):
            return wanted
        found, kind = self._named(wanted), "servers"
        if not found and deleted:
            found, kind = self._named(wanted, deleted="1"), "deleted servers"
        if not found:
            raise Failed(f"there is no server with the name or id {wanted}")
        if len(found) > 1:
            raise Failed(
                f"{len(found)} {kind} are named {wanted}; expected the id of one: "
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
        response = self._session.send(method, url, body, headers)
        if response.status_code >= 400:
            raise Answered(_reason(response), response.status_code)
        return response.json()


def meant_elsewhere(cloud: str | None, state: Path, config_file: Path | None = None) -> str | None:
    """Return where the cloud that is meant is, if it is not the one whose state directory this is."""
    if cloud is None and not names_a_cloud(os.environ):
        return None
    from skep.processes.seeds import addresses_in

    try:
        auth = _meant(cloud, config_file)[1]
    except CommandRefused as error:
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
    make, auth = _meant(cloud, config_file)
    if auth.get("username") and not auth.get("password"):
        raise CommandRefused(f"the password of {auth['username']} is missing; {NEW_PASSWORD}")
    session = make()
    endpoint = session.sign_in()
    if not endpoint:
        raise Failed("the catalogue of the identity service has no compute API")
    return Remote(session, endpoint)


def _meant(cloud: str | None, config_file: Path | None) -> tuple[Callable[[], UserSession], Mapping[str, Any]]:
    """Return how to sign in to the cloud that is meant, and what its entry says of that.

    Raises Refused when no cloud is named.
    """
    file = state_clouds_yaml(os.environ, config_file)
    plain = plain_cloud(cloud, os.environ, file, STATE_CLOUD)
    if plain is not None:
        from skep.cli.plain_session import PlainSession

        return partial(PlainSession, plain, TIMEOUT), plain.auth
    from skep.cli.sdk_session import SdkSession, region_of

    region = region_of(cloud, file, STATE_CLOUD)
    return partial(SdkSession, region, TIMEOUT), region.auth


def _reason(response: Any) -> str:
    """Return what an error answer says, whichever API it came from."""
    try:
        (inner,) = response.json().values()
        return f"{inner['message']} ({response.status_code})"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{response.url} answered {response.status_code}"
