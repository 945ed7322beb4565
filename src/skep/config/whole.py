"""What a configuration means for a whole cloud, which `skep up` starts, beside what it says."""

from __future__ import annotations

from msgspec.structs import replace

from skep.config.sections import Config


def with_networks(config: Config) -> Config:
    """Return the configuration of a cloud that has networks of its own where nothing else is said."""
    if config.networks.kind:
        return config
    kind = "embedded" if config.identity.kind == "embedded" else "none"
    return replace(config, networks=replace(config.networks, kind=kind))
