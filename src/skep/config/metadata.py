"""Settings of what servers are told about themselves. Names and defaults are Nova's where it has the option."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from skep.config.base import Section, port_of_health, tcp_port

SHORTEST_SECRET = 16
"""Characters."""


class MetadataSettings(Section, frozen=True, kw_only=True):
    """What servers read about themselves, on config drives and from the metadata service."""

    service_metadata_proxy: Annotated[
        bool,
        Meta(
            description="Whether a proxy in the network of servers proves who asks (as Neutron's metadata agent does); "
            "the metadata service runs only then"
        ),
    ] = False
    metadata_proxy_shared_secret: Annotated[
        str,
        Meta(
            description="What proxies share with the metadata service, at least 16 characters: they sign with it",
            extra={"hide": "value"},
        ),
    ] = ""
    former_metadata_proxy_shared_secret: Annotated[
        str,
        Meta(
            description="A second secret that is accepted, while proxies change over to another one; empty: none",
            extra={"hide": "value"},
        ),
    ] = ""
    port: Annotated[int, tcp_port("Port of the metadata service, on `api.bind_host`; 0 takes a free one")] = 8775
    health_port: Annotated[int, port_of_health("metadata")] = 0
    metadata_cache_expiration: Annotated[
        float, Meta(ge=0, le=3600, description="Seconds for which the service remembers what it has read of a server")
    ] = 15.0
    dhcp_domain: Annotated[
        str, Meta(max_length=200, description="Stands behind the host name of a server that has no domain of its own")
    ] = "novalocal"
    vendordata_jsonfile_path: Annotated[
        str,
        Meta(
            description="File with a JSON object of at most 64 KiB that every server is told (`vendor_data.json`); "
            "agents and the metadata service read it when they start"
        ),
    ] = ""
    vendordata_dynamic_targets: Annotated[
        tuple[str, ...],
        Meta(
            description="The operator's services that are asked what a server shall be told, each as `NAME@URL`: their "
            "answers stand below their names in `vendor_data2.json`. Agents ask them for config drives, the metadata "
            "service when that document is read",
        ),
    ] = ()
    vendordata_dynamic_timeout: Annotated[
        float, Meta(gt=0, le=60, description="Seconds in which each of these services has to have answered")
    ] = 5.0
    vendordata_dynamic_ssl_certfile: Annotated[
        str, Meta(description="CA that signed the certificates of these services; empty: the system's")
    ] = ""
    vendordata_dynamic_failure_fatal: Annotated[
        bool,
        Meta(
            description="Whether a service without an answer fails the build of a server with a config drive, and the "
            "reading of the document; otherwise `{}` stands in its place"
        ),
    ] = False
    force_config_drive: Annotated[
        bool, Meta(description="Whether each new server gets a config drive, asked for or not; API processes read it")
    ] = False

    def __post_init__(self) -> None:
        """Refuses proxies whose signatures anybody could make."""
        if self.service_metadata_proxy and len(self.metadata_proxy_shared_secret) < SHORTEST_SECRET:
            raise ValueError(
                "service_metadata_proxy is true, which needs metadata_proxy_shared_secret of at least "
                f"{SHORTEST_SECRET} characters"
            )
        self._check_targets()
        if 0 < len(self.former_metadata_proxy_shared_secret) < SHORTEST_SECRET:
            raise ValueError(f"former_metadata_proxy_shared_secret has fewer than {SHORTEST_SECRET} characters")

    def _check_targets(self) -> None:
        names = [one.partition("@")[0] for one in self.vendordata_dynamic_targets]
        for one in self.vendordata_dynamic_targets:
            name, _, url = one.partition("@")
            if not name or not url.startswith(("http://", "https://")):
                raise ValueError("vendordata_dynamic_targets: expected entries such as `name@https://HOST/PATH`")
        if len(set(names)) < len(names) or "static" in names:
            raise ValueError("vendordata_dynamic_targets: each name may be there once, and none is `static`")

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the secrets by which proxies may sign."""
        both = (self.metadata_proxy_shared_secret, self.former_metadata_proxy_shared_secret)
        return tuple(secret for secret in both if secret)
