"""Maps the configuration onto the settings of HTTP services. Agents have theirs from `hosts.py`: they import no API."""

from __future__ import annotations

from pathlib import Path

from skep.api.console_proxy import ConsoleLimits
from skep.api.services import ApiSettings, QuotaDefaults
from skep.api.unified_quotas import LimitsService, UnifiedQuotas
from skep.config.pci import PciSettings
from skep.config.sections import Config, ConsolesSettings, QuotaSettings
from skep.domain.nested.aliases import DeviceAlias
from skep.domain.nested.wanted import DeviceMatch
from skep.http.rates import RateSettings
from skep.http.request_limits import RequestLimitSettings
from skep.processes.directory import StateDirectory
from skep.standalone.identity.settings import IdentitySettings, ServiceEntry
from skep.standalone.images.settings import UNLIMITED, ImagesSettings
from skep.standalone.networks.settings import EXTERNAL_CIDR, NetworksSettings


def device_aliases(section: PciSettings) -> dict[str, DeviceAlias]:
    """Return what names of devices mean."""
    aliases: dict[str, DeviceAlias] = {}
    for one in section.alias:
        match = DeviceMatch(
            vendor_id=one.vendor_id,
            product_id=one.product_id,
            device_type=one.device_type,
            resource_class=one.resource_class,
            traits=one.traits,
        )
        known = aliases.get(one.name, DeviceAlias(matches=(), affinity=one.numa_policy))
        aliases[one.name] = DeviceAlias(matches=(*known.matches, match), affinity=known.affinity)
    return aliases


def api_settings(config: Config, identity_url: str, images_url: str) -> ApiSettings:
    """Return how the compute API behaves."""
    section, quota = config.api, config.quota
    return ApiSettings(
        max_limit=section.max_limit,
        max_body_bytes=section.max_body_bytes,
        max_backlog=section.backlog_limit,
        public_url=section.public_url or None,
        identity_url=identity_url,
        images_url=images_url,
        policy_file=section.policy_file or None,
        filters=config.scheduler.enabled_filters,
        aliases=device_aliases(config.pci),
        console_token_seconds=config.consoles.token_ttl,
        novnc_directory=Path(config.consoles.novnc_directory),
        reclaim_instance_interval=config.retention.reclaim_instance_interval,
        evacuate_needs_fence=section.evacuate_needs_fence,
        force_config_drive=config.metadata.force_config_drive,
        precache_concurrency=config.image_cache.precache_concurrency,
        precache_seconds=config.image_cache.precache_seconds,
        quotas=QuotaDefaults(
            instances=quota.instances,
            cores=quota.cores,
            ram=quota.ram,
            metadata_items=quota.metadata_items,
            key_pairs=quota.key_pairs,
            server_groups=quota.server_groups,
            server_group_members=quota.server_group_members,
            injected_files=quota.injected_files,
            injected_file_content_bytes=quota.injected_file_content_bytes,
            injected_file_path_bytes=quota.injected_file_path_length,
        ),
    )


def request_limits(config: Config) -> RequestLimitSettings:
    """Return what each project, and each address without a token, may ask of the compute API."""
    api = config.api
    return RequestLimitSettings(
        of_project=RateSettings(per_second=api.requests_per_second, burst=api.requests_burst),
        of_address=RateSettings(per_second=api.anonymous_requests_per_second, burst=api.anonymous_requests_burst),
        at_once=api.requests_at_once,
    )


def console_limits(section: ConsolesSettings) -> ConsoleLimits:
    """Return what the consoles of an API process may take."""
    return ConsoleLimits(
        most=section.max_connections,
        of_project=section.connections_of_project,
        idle=section.idle_timeout,
        longest=section.max_seconds,
        origins=frozenset(section.allowed_origins),
    )


def unified_quotas(quota: QuotaSettings, limits: LimitsService | None) -> UnifiedQuotas | None:
    """Return how quotas follow Keystone's limits; None where they are Skep's own."""
    if limits is None:
        return None
    return UnifiedQuotas(limits, quota.unified_limits_resource_strategy, quota.unified_limits_resource_list)


def identity_settings(
    config: Config, directory: StateDirectory, url: str, catalogue: tuple[ServiceEntry, ...]
) -> IdentitySettings:
    """Return how the embedded identity service behaves; `url` is its own address."""
    section = config.identity
    return IdentitySettings(
        key_file=directory.token_keys,
        public_url=url,
        catalogue=catalogue,
        token_expiration=section.token_expiration,
        scrypt_cost=section.scrypt_cost,
        password_threads=section.password_threads,
        sign_in_failures=section.sign_in_failures,
        sign_in_longest_delay=section.sign_in_longest_delay,
        lockout_failure_attempts=section.lockout_failure_attempts,
        lockout_duration=section.lockout_duration,
        password_regex=section.password_regex,
        password_regex_description=section.password_regex_description,
        minimum_password_length=section.minimum_password_length,
        unique_last_password_count=section.unique_last_password_count,
        password_expires_days=section.password_expires_days,
    )


def images_settings(config: Config, directory: StateDirectory, identity_url: str) -> ImagesSettings:
    """Return how the embedded image store behaves."""
    section = config.images
    return ImagesSettings(
        directory=directory.images,
        identity_url=identity_url,
        image_property_quota=section.image_property_quota,
        image_tag_quota=section.image_tag_quota,
        image_member_quota=section.image_member_quota,
        property_bytes=section.property_bytes,
        images_per_project=section.images_per_project,
        bytes_per_project=UNLIMITED if section.mib_per_project == UNLIMITED else section.mib_per_project * (1 << 20),
        free_bytes=section.free_mib * (1 << 20),
        page_bytes=section.page_bytes,
    )


def networks_settings(config: Config, identity_url: str) -> NetworksSettings:
    """Return how the embedded network service behaves."""
    section = config.networks
    return NetworksSettings(
        identity_url=identity_url,
        mtu=section.mtu,
        auto_allocated_cidr=section.auto_allocated_cidr,
        external_cidr=section.external_cidr or EXTERNAL_CIDR,
        quotas={
            "network": section.quota_network,
            "subnet": section.quota_subnet,
            "port": section.quota_port,
            "security_group": section.quota_security_group,
            "security_group_rule": section.quota_security_group_rule,
            "router": section.quota_router,
            "floatingip": section.quota_floatingip,
        },
    )
