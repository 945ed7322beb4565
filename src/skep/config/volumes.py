"""The section of the volume service."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from skep.config.base import Section


class VolumesSettings(Section, frozen=True, kw_only=True):
    """The volume service of which servers have volumes: Cinder, or none."""

    kind: Annotated[
        Literal["none", "cinder"],
        Meta(description="`none`: what names a volume is refused; `cinder`: a Cinder beside Keystone"),
    ] = "none"
    endpoint: Annotated[
        str, Meta(description="Address of Cinder with `/v3`; empty: what Keystone's catalogue says")
    ] = ""
    cross_az_attach: Annotated[
        bool,
        Meta(
            description="Whether a server may have volumes of another availability zone than its own (Nova's name); "
            "without it, volumes that are made for a server are made in its zone"
        ),
    ] = True
    build_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description="Seconds in which the volumes that are made for a new server have to be there, once Cinder has "
            "begun to make them",
        ),
    ] = 600.0
    reimage_timeout_per_gb: Annotated[
        float,
        Meta(
            gt=0,
            description="Seconds for each GiB of the image in which a rebuild has its volume filled (Nova's name)",
        ),
    ] = 20.0
    look_seconds: Annotated[
        float, Meta(gt=0, description="Seconds between two looks at what a server has of Cinder")
    ] = 3600.0

    def __post_init__(self) -> None:
        """Refuses an address that would be ignored."""
        if self.endpoint and self.kind != "cinder":
            raise ValueError(f"endpoint is read only with kind = `cinder`, and kind is `{self.kind}`")
        if self.endpoint and not self.endpoint.startswith(("http://", "https://")):
            raise ValueError("endpoint must begin with http:// or https://")
