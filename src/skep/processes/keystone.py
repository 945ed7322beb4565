"""How Skep signs in to Keystone, by the configuration."""

from __future__ import annotations

from msgspec.structs import replace

from skep.config.compute import HostImagesSettings
from skep.config.sections import IdentitySettings
from skep.neighbours.service_session import ServiceCredentials


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
