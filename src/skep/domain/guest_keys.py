"""Extra specs and image properties that say what a guest is like, and which of them a host refuses.

Schedulers read the keys about hosts (`resources`, `trait`, `capabilities`, ...) themselves. All others are for the
drivers, and no driver can give all. What a host's driver refuses it tells with the host's facts, so that a server goes
to another host, or is refused before anything is allocated.
"""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Iterator, Mapping

import msgspec

from skep.domain.images import NO_WORDS, YES_WORDS

IMAGE_PROPERTIES = frozenset(
    "hw_architecture hw_auto_disk_config hw_boot_menu hw_cdrom_bus hw_cpu_cores hw_cpu_max_cores hw_cpu_max_sockets "
    "hw_cpu_max_threads hw_cpu_policy hw_cpu_realtime_mask hw_cpu_sockets hw_cpu_thread_policy hw_cpu_threads "
    "hw_device_id hw_disk_bus hw_disk_type hw_emulation_architecture hw_ephemeral_encryption "
    "hw_ephemeral_encryption_format hw_ephemeral_encryption_secret_uuid hw_firmware_stateless hw_firmware_type "
    "hw_floppy_bus hw_input_bus hw_ipxe_boot hw_locked_memory hw_machine_type hw_maxphysaddr_bits hw_maxphysaddr_mode "
    "hw_mem_encryption hw_mem_encryption_model hw_mem_page_size hw_numa_cpus hw_numa_mem hw_numa_nodes "
    "hw_pci_numa_affinity_policy hw_pmu hw_pointer_model hw_qemu_guest_agent hw_redirected_usb_ports hw_rescue_bus "
    "hw_rescue_device hw_rng_model hw_scsi_model hw_serial_port_count hw_sound_model hw_time_hpet hw_tpm_model "
    "hw_tpm_version hw_usb_model hw_video_model hw_video_ram hw_vif_model hw_vif_multiqueue_enabled hw_viommu_model "
    "hw_virtio_packed_ring hw_vm_mode hw_watchdog_action "
    "img_bdm_v2 img_bittorrent img_block_device_mapping img_cache_in_nova img_compression_level img_config_drive "
    "img_hide_hypervisor_id img_hv_requested_version img_hv_type img_linked_clone img_mappings img_owner_id "
    "img_root_device_name img_signature img_signature_certificate_uuid img_signature_hash_method "
    "img_signature_key_type img_use_agent img_version "
    "os_admin_user os_command_line os_distro os_require_quiesce os_secure_boot os_skip_agent_inject_files_at_boot "
    "os_skip_agent_inject_ssh os_type "
    "traits_required".split()
)
"""The 86 properties that Nova knows (`ImageMetaProps`). `hw_numa_cpus` and `hw_numa_mem` have a number behind them in
an image, and `traits_required` stands for all `trait:NAME`."""
KERNEL = frozenset({"kernel_id", "ramdisk_id"})
"""Properties by which an image names others that it boots with."""
HOSTS_ALONE = frozenset({"resources", "trait", "capabilities", "aggregate_instance_extra_specs", "volume", "spread"})
"""Prefixes of extra specs that concern the choice of a host; `resources` and `trait` may have a group behind them."""
NUMBERED = ("hw_numa_cpus.", "hw_numa_mem.")
HIDE = "hide_hypervisor_id"
"""The one extra spec about guests that has no prefix."""

AGREEING = {
    "hw:locked_memory": "hw_locked_memory",
    "hw:maxphysaddr_bits": "hw_maxphysaddr_bits",
    "hw:maxphysaddr_mode": "hw_maxphysaddr_mode",
    "hw:pmu": "hw_pmu",
    "hw:redirected_usb_ports": "hw_redirected_usb_ports",
    "hw:sound_model": "hw_sound_model",
    "hw:usb_model": "hw_usb_model",
    "hw:vif_multiqueue_enabled": "hw_vif_multiqueue_enabled",
    "hw:virtio_packed_ring": "hw_virtio_packed_ring",
    "os:secure_boot": "os_secure_boot",
}
"""Extra specs, and properties that must not say something else beside them (Nova: `FlavorImageConflict`). Of all
others that both may say one side counts, or placement reads them."""

Pairs = tuple[tuple[str, str], ...]


class KeyRule(msgspec.Struct, frozen=True, array_like=True):
    """Keys that a host refuses."""

    keys: str
    """A shell pattern."""
    taken: tuple[str, ...] = ()
    """Values, in small letters, that are not refused."""


class RefusedKeys(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What guests of a host cannot have."""

    extra_specs: tuple[KeyRule, ...] = ()
    properties: tuple[KeyRule, ...] = ()

    def of(self, asked: AskedOfGuest) -> Iterator[str]:
        """Give the keys that are refused: extra specs first."""
        for rules, pairs in ((self.extra_specs, asked.extra_specs), (self.properties, asked.properties)):
            for key, value in pairs:
                if _is_refused(rules, key, value):
                    yield key


class AskedOfGuest(msgspec.Struct, frozen=True, kw_only=True):
    """What a flavor and an image say of a guest, in the order of the keys."""

    extra_specs: Pairs = ()
    properties: Pairs = ()

    def keys(self) -> Iterator[str]:
        """Give the names: extra specs first."""
        for key, _ in self.extra_specs + self.properties:
            yield key


def asked_of_guest(specs: Mapping[str, str], properties: Mapping[str, str]) -> AskedOfGuest | None:
    """Return what is said of the guest; None where nothing is."""
    found = AskedOfGuest(
        extra_specs=tuple(sorted(pair for pair in specs.items() if _is_spec_of_guest(pair[0]))),
        properties=tuple(sorted(pair for pair in properties.items() if is_property_of_guest(pair[0]))),
    )
    return found if found.extra_specs or found.properties else None


def is_property_of_guest(key: str) -> bool:
    """Tell whether a property of an image says something of guests: anything else is its owner's own."""
    return key in IMAGE_PROPERTIES or key in KERNEL or key.startswith(NUMBERED)


def _is_spec_of_guest(key: str) -> bool:
    prefix, colon, _ = key.partition(":")
    if not colon:
        return key == HIDE
    return prefix not in HOSTS_ALONE and not prefix.startswith(("resources", "trait"))


@functools.lru_cache(maxsize=4096)
def _is_refused(rules: tuple[KeyRule, ...], key: str, value: str) -> bool:
    return any(fnmatch.fnmatchcase(key, rule.keys) and value.lower() not in rule.taken for rule in rules)


def disagreement(specs: Mapping[str, str], properties: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the first property of an image that says something else than the flavor does, and what that says.

    None: they agree.
    """
    for of_flavor, of_image in AGREEING.items():
        ours, theirs = specs.get(of_flavor), properties.get(of_image)
        if ours and theirs and _plain(ours) != _plain(theirs):
            return of_image, ours
    return None


def _plain(value: str) -> str | bool:
    """Return a value so that equal ones are equal: `Yes` and `true` are."""
    lower = value.lower()
    return lower in YES_WORDS if lower in YES_WORDS | NO_WORDS else lower
