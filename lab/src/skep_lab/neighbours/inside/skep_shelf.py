"""A volume driver for Cinder that stores nothing: each act succeeds, and a connection looks like one over iSCSI."""

import io
from typing import Any

from cinder import interface
from cinder.volume import driver

GIB = 100_000
IMAGE = bytes(1 << 20)
"""What an image that is made of a volume consists of."""


@interface.volumedriver
class SkepShelf(driver.CloneableImageVD, driver.MigrateVD, driver.BaseVD):  # type: ignore[misc]
    """Volumes that are rows only."""

    VERSION = "1"
    CI_WIKI_NAME = "none"

    @classmethod
    def get_driver_options(cls) -> list[Any]:
        """There is nothing to configure."""
        return []

    def check_for_setup_error(self) -> None:
        """Nothing can be missing."""

    def get_volume_stats(self, refresh: bool = False) -> dict[str, Any]:
        """Tell of one pool that is large enough for everything."""
        name = self.configuration.safe_get("volume_backend_name")
        pool = {
            "pool_name": name,
            "total_capacity_gb": GIB,
            "free_capacity_gb": GIB,
            "allocated_capacity_gb": 0,
            "provisioned_capacity_gb": 0,
            "reserved_percentage": 0,
            "max_over_subscription_ratio": "20.0",
            "thin_provisioning_support": True,
            "multiattach": True,
            "filter_function": self.get_filter_function(),
            "goodness_function": self.get_goodness_function(),
        }
        return {
            "volume_backend_name": name,
            "vendor_name": "none",
            "driver_version": self.VERSION,
            "storage_protocol": "iSCSI",
            "pools": [pool],
        }

    def initialize_connection(self, volume: Any, connector: Any, **_: Any) -> dict[str, Any]:
        """Tell where a host would find a volume."""
        target = {
            "target_iqn": f"iqn.2010-10.org.openstack:volume-{volume.id}",
            "target_portal": "127.0.0.1:3260",
            "target_lun": 1,
            "target_discovered": False,
            "volume_id": volume.id,
            "access_mode": "rw",
            "encrypted": False,
        }
        return {"driver_volume_type": "iscsi", "data": target}

    def clone_image(self, *_: Any) -> tuple[dict[str, Any], bool]:
        """Have a volume hold an image at once."""
        return {}, True

    def copy_volume_to_image(self, context: Any, volume: Any, image_service: Any, image_meta: Any) -> None:
        """Give an image that is made of a volume some content."""
        image_service.update(context, image_meta["id"], {}, io.BytesIO(IMAGE))

    def migrate_volume(self, *_: Any) -> tuple[bool, None]:
        """Move without moving anything."""
        return True, None

    def retype(self, *_: Any) -> bool:
        """Take any type."""
        return True

    def update_migrated_volume(self, *_: Any) -> dict[str, Any]:
        """Keep the name."""
        return {"_name_id": None}

    def _nothing(self, *_: Any, **__: Any) -> None:
        return None

    accept_transfer = _nothing
    copy_image_to_volume = _nothing
    create_cloned_volume = _nothing
    create_export = _nothing
    create_export_snapshot = _nothing
    create_snapshot = _nothing
    create_volume = _nothing
    create_volume_from_snapshot = _nothing
    delete_snapshot = _nothing
    delete_volume = _nothing
    ensure_export = _nothing
    extend_volume = _nothing
    remove_export = _nothing
    remove_export_snapshot = _nothing
    revert_to_snapshot = _nothing
    terminate_connection = _nothing
    terminate_connection_snapshot = _nothing
    initialize_connection_snapshot = initialize_connection
