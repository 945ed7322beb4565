"""Signs in to a cloud and asks its APIs by the standard library alone: small to import."""

from __future__ import annotations

import http.client
import os
import ssl
import urllib.error
import urllib.request
from typing import Any

import msgspec

from skep.cli.failures import Failed
from skep.cli.plain_clouds import PlainCloud

COMPUTE = frozenset(("compute",))


class PlainAnswer:
    """What an API answered, good or not."""

    def __init__(self, url: str, status: int, headers: Any, content: bytes) -> None:
        self.url = url
        self.status_code = status
        self.headers = headers
        self.content = content

    def json(self) -> Any:
        """Return the body as a value. Raises ValueError when it is none."""
        return msgspec.json.decode(self.content)


class PlainSession:
    """A signed-in user of a plain cloud. `timeout`: seconds for each request."""

    def __init__(self, cloud: PlainCloud, timeout: float) -> None:
        self._cloud = cloud
        self._timeout = timeout
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if _url(cloud).startswith("https:"):
            handlers.append(urllib.request.HTTPSHandler(context=_trust(cloud)))
        self._opener = urllib.request.build_opener(*handlers)
        self._token = cloud.auth.get("token", "")

    def sign_in(self) -> str:
        """Get a token; return where the compute API is, empty where the catalogue names none. Raises Failed."""
        if self._token:
            return self._cloud.auth["endpoint"]
        url = _url(self._cloud).rstrip("/")
        answer = self.send("POST", f"{url}/auth/tokens", {"auth": _auth(self._cloud)}, {})
        if answer.status_code == 401:
            raise Failed(f"{url} refused the sign-in: user or password is wrong")
        try:
            if answer.status_code == 201:
                self._token = answer.headers["X-Subject-Token"]
                return _endpoint(self._cloud, answer.json()["token"].get("catalog", []))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Failed(f"{url} is no identity service: {error!r} in its answer") from error
        raise Failed(f"{url} answered {answer.status_code} to a sign-in")

    def send(self, method: str, url: str, body: Any, headers: dict[str, str]) -> PlainAnswer:
        """Ask an API; an answer of any status is one. Raises Failed when nobody answers."""
        content = None if body is None else msgspec.json.encode(body)
        said = {"Accept": "application/json", "User-Agent": "skep", **headers}
        said |= {"X-Auth-Token": self._token} if self._token else {}
        said |= {} if content is None else {"Content-Type": "application/json"}
        request = urllib.request.Request(url, content, said, method=method)  # noqa: S310 - http and https alone
        try:
            with self._opener.open(request, timeout=self._timeout) as answered:
                return PlainAnswer(url, answered.status, answered.headers, answered.read())
        except urllib.error.HTTPError as error:
            with error:
                return PlainAnswer(url, error.code, error.headers, error.read())
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise Failed(_unreached(error, url, self._timeout)) from error


def _url(cloud: PlainCloud) -> str:
    return cloud.auth.get("auth_url") or cloud.auth["endpoint"]


def _trust(cloud: PlainCloud) -> ssl.SSLContext:
    """Return whose certificates are accepted: the same as the SDK's."""
    if not cloud.verify:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    file = cloud.cacert or os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or _usual()
    return ssl.create_default_context(
        cafile=file if file and not os.path.isdir(file) else None,  # noqa: PTH112 - a string goes to OpenSSL
        capath=file if file and os.path.isdir(file) else None,  # noqa: PTH112
    )


def _usual() -> str | None:
    try:
        import certifi
    except ImportError:
        return None
    return str(certifi.where())


def _auth(cloud: PlainCloud) -> dict[str, Any]:
    said = cloud.auth
    if cloud.auth_type == "v3applicationcredential":
        known = {"id": said["application_credential_id"], "secret": said["application_credential_secret"]}
        return {"identity": {"methods": ["application_credential"], "application_credential": known}}
    user = {"password": said.get("password", ""), **_known(said, "user", "username")}
    return {
        "identity": {"methods": ["password"], "password": {"user": user}},
        "scope": {"project": _known(said, "project", "project_name")},
    }


def _known(said: dict[str, str], noun: str, name: str) -> dict[str, Any]:
    """Return a user or project by its id, else by its name and domain."""
    if said.get(f"{noun}_id"):
        return {"id": said[f"{noun}_id"]}
    domain = {key: said[f"{noun}_domain_{key}"] for key in ("id", "name") if said.get(f"{noun}_domain_{key}")}
    return {"name": said[name], "domain": domain if "id" not in domain else {"id": domain["id"]}}


def _endpoint(cloud: PlainCloud, catalog: list[dict[str, Any]]) -> str:
    if cloud.compute_endpoint_override:
        return cloud.compute_endpoint_override
    interface = cloud.interface.removesuffix("URL")
    for service in catalog:
        for endpoint in service["endpoints"] if service["type"] in COMPUTE else []:
            region = endpoint.get("region_id") or endpoint.get("region")
            if endpoint["interface"] == interface and cloud.region_name in {"", region}:
                return str(endpoint["url"])
    return ""


def _unreached(error: Exception, url: str, timeout: float) -> str:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, TimeoutError):
        return f"{url} does not answer within {timeout:g} s"
    if isinstance(reason, ssl.SSLError):
        return f"{url}: its certificate is not accepted: {reason}"
    if isinstance(reason, OSError):
        return f"nothing answers at {url}: is the cloud running?"
    return f"{url}: {error}"
