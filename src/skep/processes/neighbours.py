"""Which services answer for identity, images, networks and volumes, by the configuration."""

from __future__ import annotations

import httpx

from skep.config.authorities import authorities
from skep.config.sections import Config, IdentitySettings
from skep.database.engine import Database
from skep.domain.clock import Clock
from skep.domain.errors import Misconfigured, Unreachable
from skep.neighbours.answers import new_client
from skep.neighbours.circuits import Circuits
from skep.neighbours.identity.base import IdentityService
from skep.neighbours.identity.keystone import KeystoneIdentity, KeystoneSettings
from skep.neighbours.images.base import ImageRecords, ImageService, ImagesOfUsers
from skep.neighbours.images.glance import GlanceImages
from skep.neighbours.images.glance_of_users import GlanceOfUsers
from skep.neighbours.service_session import CredentialsRefused
from skep.neighbours.unified_limits import EndpointHidden, UnifiedLimits
from skep.processes import mapping
from skep.processes.directory import StateDirectory
from skep.processes.keystone import keystone_credentials
from skep.processes.own_services import OwnServices
from skep.standalone.identity.service import StandaloneIdentity
from skep.standalone.identity.settings import standard_catalogue
from skep.standalone.images.embedded import EmbeddedImages
from skep.standalone.images.of_users import EmbeddedOfUsers
from skep.standalone.images.refusals import LIMITS
from skep.standalone.images.service import StandaloneImages
from skep.telemetry.metrics import Metrics


class Neighbours:
    """Identity, images and networks of one process. `store` and `users` are there where the embedded services are."""

    def __init__(
        self,
        config: Config,
        directory: StateDirectory,
        api: Database,
        clock: Clock,
        *,
        api_url: str,
        identity_url: str,
        images_url: str,
        networks_url: str,
        metrics: Metrics,
        circuits: Circuits | None = None,
    ) -> None:
        """Raises Misconfigured when a file of the configuration cannot be used."""
        self._config = config
        self._http: httpx.AsyncClient | None = None
        self._keystone: KeystoneIdentity | None = None
        self.users: StandaloneIdentity | None = None
        self.store: StandaloneImages | None = None
        self.limits: UnifiedLimits | None
        """Keystone's, where these are the quotas."""
        self.identity: IdentityService
        self.images: ImageService
        self.image_records: ImageRecords
        self.images_of_users: ImagesOfUsers
        self.embedded_images: EmbeddedImages | None = None
        if config.identity.kind == "keystone":
            self._http = new_client(authorities(config.identity.ca_file, "identity.ca_file"))
            self.identity = self._keystone = KeystoneIdentity(
                keystone_settings(config.identity), self._http, clock, circuits
            )
        else:
            catalogue = standard_catalogue(api_url, identity_url, images_url, networks_url)
            settings = mapping.identity_settings(config, directory, identity_url, catalogue)
            self.identity = self.users = users = StandaloneIdentity(
                settings, api, clock, said=lambda outcome: metrics.sign_ins.labels(outcome).inc()
            )
            metrics.sign_ins_waiting.set_function(lambda: users.passwords.waiting)
        self.own_services = OwnServices(config, api, clock, circuits)
        self.limits = None
        if config.quota.driver == "unified" and self._keystone is not None:
            quota = config.quota
            self.limits = UnifiedLimits(
                self._keystone.session, quota.endpoint_id, quota.unified_limits_cache_seconds, clock
            )
        if config.images.kind == "glance" and self._keystone is not None:
            self.images = self.image_records = GlanceImages(self._keystone.session, config.images.endpoint)
            self.images_of_users = GlanceOfUsers(self._keystone.session, config.images.endpoint)
        else:
            self.store = StandaloneImages(
                mapping.images_settings(config, directory, identity_url),
                api,
                clock,
                refused=lambda limit: metrics.images_refused.labels(limit).inc(),
            )
            for limit in LIMITS:
                metrics.images_refused.labels(limit)
            self.images = self.image_records = self.embedded_images = EmbeddedImages(self.store)
            self.images_of_users = EmbeddedOfUsers(self.store)

    async def open(self) -> None:
        """Open the store, sign in to Keystone, find the service of the limits.

        Raises Misconfigured when Keystone refuses Skep's user or does not show it whose limits are the quotas,
        Unavailable when it does not answer.
        """
        if self.store is not None:
            await self.store.open()
        if self._keystone is not None:
            section = self._config.identity
            try:
                await self._keystone.session.sign_in()
                if self.store is None and not self._config.images.endpoint:
                    await self._keystone.session.endpoint("image")
                await self.own_services.find(self._config)
                if self.limits is not None:
                    await self.limits.find_service()
            except CredentialsRefused as error:
                raise Misconfigured(
                    f"identity.username, identity.password: {error}; expected a user of project "
                    f"{section.project_name!r} in domain {section.user_domain_name!r}"
                ) from error
            except EndpointHidden as error:
                raise Misconfigured(
                    f"quota.endpoint_id: {error}; it is {self._config.quota.endpoint_id!r}, and user "
                    f"{section.username!r} needs the role `admin` in project {section.project_name!r}"
                ) from error
            except Unreachable as error:
                # Whoever starts the process may know the address, unlike users who read the error later.
                raise Unreachable(f"identity.auth_url: {error}; it is {section.auth_url}") from error

    async def close(self) -> None:
        """Close connections and the threads that hash passwords."""
        if self.users is not None:
            self.users.close()
        if self._http is not None:
            await self._http.aclose()
        await self.own_services.close()


def keystone_settings(section: IdentitySettings) -> KeystoneSettings:
    """Return how Keystone is asked."""
    return KeystoneSettings(
        credentials=keystone_credentials(section),
        cache_seconds=section.token_cache_seconds,
        change_cache_seconds=section.token_cache_seconds_for_changes,
    )
