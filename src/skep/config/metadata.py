"""Settings of what servers are told about themselves. Names and defaults are Nova's where it has the option."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from skep.config.base import Section


class MetadataSettings(Section, frozen=True, kw_only=True):
    """What servers read about themselves, on config drives and from the metadata service."""

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
    force_config_drive: Annotated[
        bool, Meta(description="Whether each new server gets a config drive, asked for or not; API processes read it")
    ] = False
