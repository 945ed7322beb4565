"""How the sections of identity and images name the real services: Keystone and Glance instead of the embedded ones."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from skep.config.base import Section


class KeystoneSection(Section, frozen=True, kw_only=True):
    """The keys of `[identity]` that are about Keystone; the names are those of its own clients."""

    kind: Annotated[
        Literal["embedded", "keystone"],
        Meta(description="`embedded`: users and tokens of this cloud; `keystone`: those of the Keystone at `auth_url`"),
    ] = "embedded"
    auth_url: Annotated[str, Meta(description="Address of Keystone, with or without `/v3`")] = ""
    username: Annotated[
        str, Meta(description="Skep's own user in Keystone, with the roles `service` and `admin` in its project")
    ] = ""
    password: Annotated[str, Meta(description="Password of `username`", extra={"hide": "value"})] = ""
    project_name: Annotated[str, Meta(description="Project of `username`")] = "service"
    user_domain_name: Annotated[str, Meta(description="Domain of `username`")] = "Default"
    project_domain_name: Annotated[str, Meta(description="Domain of `project_name`")] = "Default"
    region_name: Annotated[str, Meta(description="Region whose endpoints are used; empty: any")] = ""
    ca_file: Annotated[
        str, Meta(description="CA that signed the certificates of Keystone and Glance; empty: the system's")
    ] = ""
    timeout: Annotated[
        float, Meta(gt=0, description="Seconds after which a try of a request to Keystone or Glance is given up")
    ] = 10.0
    retries: Annotated[
        int, Meta(ge=0, le=10, description="Further tries of a request to Keystone or Glance that had no good answer")
    ] = 2
    breaker_failures: Annotated[
        int,
        Meta(
            ge=0,
            description="Requests in a row without an answer after which Keystone, Glance, Neutron or Cinder counts as "
            "away in a process: requests that need it are refused at once; 0: never",
        ),
    ] = 5
    breaker_seconds: Annotated[
        float, Meta(gt=0, description="Seconds after which one request tries a service that is away")
    ] = 5.0
    token_cache_seconds: Annotated[
        int,
        Meta(ge=0, description="Seconds a valid token is believed for reading (keystonemiddleware's token_cache_time)"),
    ] = 300
    token_cache_seconds_for_changes: Annotated[
        int, Meta(ge=0, description="Seconds a valid token is believed for requests that change something")
    ] = 15

    def __post_init__(self) -> None:
        """Refuses Keystone without an address or credentials, and an address that would be ignored."""
        if self.kind == "embedded" and self.auth_url:
            raise ValueError("auth_url is read only with kind = `keystone`, and kind is `embedded`")
        missing = [key for key in ("auth_url", "username", "password") if not getattr(self, key)]
        if self.kind == "keystone" and missing:
            raise ValueError(f"kind is `keystone`, which needs {', '.join(missing)}")
        if self.auth_url and not self.auth_url.startswith(("http://", "https://")):
            raise ValueError("auth_url must begin with http:// or https://")


class GlanceSection(Section, frozen=True, kw_only=True):
    """The keys of `[images]` that are about Glance. Skep's own user is the one of `[identity]`."""

    kind: Annotated[
        Literal["embedded", "glance"],
        Meta(description="`embedded`: images in the state directory; `glance`: those of a Glance beside Keystone"),
    ] = "embedded"
    endpoint: Annotated[
        str, Meta(description="Address of Glance without `/v2`; empty: what Keystone's catalogue says")
    ] = ""

    def __post_init__(self) -> None:
        """Refuses an address that would be ignored."""
        if self.kind == "embedded" and self.endpoint:
            raise ValueError("endpoint is read only with kind = `glance`, and kind is `embedded`")
        if self.endpoint and not self.endpoint.startswith(("http://", "https://")):
            raise ValueError("endpoint must begin with http:// or https://")
