"""Configuration: one TOML file and the environment, read in one place into frozen structs.

Each service is handed its own section as an argument (`sections.py` has most, and gathers all); nobody reads files
or the environment on his own.
"""

from __future__ import annotations

from skep.config.compute import ComputeSettings, FakeDriverSettings, FakeFailure
from skep.config.errors import ConfigError, Problem
from skep.config.loading import LoadedConfig, load
from skep.config.networks import NetworksSettings
from skep.config.provenance import Setting, Source, settings
from skep.config.scheduler import SchedulerSettings
from skep.config.sections import (
    ApiSettings,
    CellSettings,
    ConductorSettings,
    Config,
    DatabaseSettings,
    IdentitySettings,
    ImagesSettings,
    LogSettings,
    QuotaSettings,
    RetentionSettings,
    StateSettings,
)
from skep.config.volumes import VolumesSettings

__all__ = [
    "ApiSettings",
    "CellSettings",
    "ComputeSettings",
    "ConductorSettings",
    "Config",
    "ConfigError",
    "DatabaseSettings",
    "FakeDriverSettings",
    "FakeFailure",
    "IdentitySettings",
    "ImagesSettings",
    "LoadedConfig",
    "LogSettings",
    "NetworksSettings",
    "Problem",
    "QuotaSettings",
    "RetentionSettings",
    "SchedulerSettings",
    "Setting",
    "Source",
    "StateSettings",
    "VolumesSettings",
    "load",
    "settings",
]
