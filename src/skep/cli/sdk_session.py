"""Signs in to a cloud by the OpenStack SDK, which knows all that a clouds.yaml may say."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from skep.cli.failures import CommandRefused, Failed


class SdkSession:
    """A signed-in user of a cloud. `timeout`: seconds for each request."""

    def __init__(self, region: Any, timeout: float) -> None:
        """Read what the SDK needs to sign in. Raises Refused when that is not enough."""
        from keystoneauth1 import exceptions
        from openstack import exceptions as sdk

        self._region = region
        self._timeout = timeout
        try:
            self._session = region.get_session()
        except (sdk.ConfigException, exceptions.MissingRequiredOptions, exceptions.NoMatchingPlugin) as error:
            raise which(error) from error

    def sign_in(self) -> str:
        """Get a token; return where the compute API is, empty where the catalogue names none. Raises Failed."""
        from keystoneauth1 import exceptions

        try:
            return str(self._region.get_session_endpoint("compute") or "")
        except exceptions.ClientException as error:
            url = str(self._region.auth.get("auth_url", self._region.name))
            raise Failed(_unreached(error, url, self._timeout)) from error

    def send(self, method: str, url: str, body: Any, headers: dict[str, str]) -> Any:
        """Ask an API; an answer of any status is one. Raises Failed when nobody answers."""
        from keystoneauth1 import exceptions

        more = {} if body is None else {"json": body}
        try:
            return self._session.request(url, method, headers=headers, raise_exc=False, timeout=self._timeout, **more)
        except exceptions.ClientException as error:
            raise Failed(_unreached(error, url, self._timeout)) from error


def region_of(cloud: str | None, file: Path | None, default: str) -> Any:
    """Return the entry of the cloud that is meant: in this file where one is given, of `default` where none is named.

    Raises Refused when there is none.
    """
    try:
        from keystoneauth1 import exceptions
        from openstack import config as cloud_config
        from openstack import exceptions as sdk
    except ImportError as error:
        raise CommandRefused(
            f"{error.name} is not installed: the sign-in of this entry of clouds.yaml needs openstacksdk"
        ) from error
    logging.getLogger("keystoneauth").setLevel(logging.ERROR)  # what it warns of we say ourselves, in one line
    try:
        if file is not None:
            ours = cloud_config.OpenStackConfig(config_files=[str(file)])
            if cloud is None or cloud in ours.get_cloud_names():
                return ours.get_one(cloud or default)
        return cloud_config.OpenStackConfig().get_one(cloud)
    except (sdk.ConfigException, exceptions.MissingRequiredOptions, exceptions.NoMatchingPlugin) as error:
        raise which(error) from error


def which(error: Exception) -> CommandRefused:
    """Return what is said where no cloud is named."""
    return CommandRefused(f"which cloud? {error} (set OS_CLOUD, or run where `skep up` keeps its state)")


def _unreached(error: Exception, url: str, timeout: float) -> str:
    """Say in one line why nobody answered, or did not let us in."""
    from keystoneauth1 import exceptions

    if isinstance(error, exceptions.ConnectTimeout):
        return f"{url} does not answer within {timeout:g} s"
    if isinstance(error, exceptions.SSLError):
        return f"{url}: its certificate is not accepted: {error}"
    if isinstance(error, exceptions.ConnectFailure):
        return f"nothing answers at {url}: is the cloud running?"
    if isinstance(error, exceptions.Unauthorized):
        return f"{url} refused the sign-in: user or password is wrong"
    return f"{url}: {error}"
