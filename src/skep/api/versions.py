"""The version documents: what clients ask before they have a token."""

from __future__ import annotations

from typing import Any

from skep.api.microversions import MAXIMUM, MINIMUM, text

_V20_UPDATED = "2011-01-21T11:33:21Z"
_V21_UPDATED = "2013-07-23T11:33:21Z"


def root(base: str) -> dict[str, Any]:
    """Return the document at `/`: all versions of the API."""
    return {"versions": [_version(base, 0), _version(base, 1)]}


def document(base: str, prefix: str) -> dict[str, Any]:
    """Return the document of one version; `prefix` is `/v2` or `/v2.1`."""
    minor = 1 if prefix == "/v2.1" else 0
    version = _version(base, minor)
    version["links"].append({"rel": "describedby", "type": "text/html", "href": "http://docs.openstack.org/"})
    suffix = "2.1" if minor else "2"
    version["media-types"] = [
        {"base": "application/json", "type": f"application/vnd.openstack.compute+json;version={suffix}"}
    ]
    return {"version": version}


def _version(base: str, minor: int) -> dict[str, Any]:
    """Describe v2.1, or v2.0, which is v2.1 without microversions."""
    return {
        "id": f"v2.{minor}",
        "status": "CURRENT" if minor else "DEPRECATED",
        "version": text(MAXIMUM) if minor else "",
        "min_version": text(MINIMUM) if minor else "",
        "updated": _V21_UPDATED if minor else _V20_UPDATED,
        "links": [{"rel": "self", "href": f"{base}/v2.1/" if minor else f"{base}/v2/"}],
    }
