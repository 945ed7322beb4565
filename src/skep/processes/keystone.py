"""How Skep signs in to Keystone, by the configuration."""

from __future__ import annotations

from msgspec.structs import replace

from skep.config.compute import HostImagesSettings
from skep.config.sections import IdentitySettings
from skep.domain.clock import Clock
from skep.neighbours.answers import LABELS
from skep.neighbours.circuits import CircuitRules, Circuits
from skep.neighbours.service_session import ServiceCredentials
from skep.telemetry.metrics import Metrics


def keystone_credentials(section: IdentitySettings) -> ServiceCredentials:
    """Return the credentials of Skep's own user."""
    return replace(credentials_of(section), retries=section.retries)


def credentials_of(section: IdentitySettings | HostImagesSettings) -> ServiceCredentials:
    """Return the credentials of the user that a section names."""
    return ServiceCredentials(
        auth_url=section.auth_url,
        username=section.username,
        password=section.password,
        project_name=section.project_name,
        user_domain_name=section.user_domain_name,
        project_domain_name=section.project_domain_name,
        region_name=section.region_name,
        timeout=section.timeout,
    )


def circuits_of(section: IdentitySettings, clock: Clock, metrics: Metrics) -> Circuits:
    """Return what the parts of one process share of the services that are away."""
    for label in LABELS.values():
        metrics.neighbour_away.labels(label).set(0)
        metrics.neighbour_spared.labels(label)
    return Circuits(
        CircuitRules(failures=section.breaker_failures, pause=section.breaker_seconds, patience=section.timeout),
        clock.elapsed,
        changed=lambda service, away: metrics.neighbour_away.labels(LABELS[service]).set(away),
        spared=lambda service: metrics.neighbour_spared.labels(LABELS[service]).inc(),
    )
