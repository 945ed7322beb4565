"""What extra specs and image properties imply of traits, before any host is looked at (Nova, "Prefilters").

Pre-filters about aggregates are filters here (`filters/isolated_aggregates.py`, `filters/tenant_aggregate.py`), and so
are the zone and the status of a host. Those that ask Neutron or Cyborg are none of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import os_traits

from skep.domain.images import YES_WORDS
from skep.domain.request_specs import RequestSpec
from skep.placement.options import PlacementOptions

_IMAGE_TRAITS = {
    "hw_cdrom_bus": "COMPUTE_STORAGE_BUS",
    "hw_disk_bus": "COMPUTE_STORAGE_BUS",
    "hw_video_model": "COMPUTE_GRAPHICS_MODEL",
    "hw_vif_model": "COMPUTE_NET_VIF_MODEL",
    "hw_architecture": "HW_ARCH",
    "hw_emulation_architecture": "COMPUTE_ARCH",
    "hw_viommu_model": "COMPUTE_VIOMMU",
}
"""Prefix of the trait that says a host has what the property's value names."""
_STANDARD = frozenset(os_traits.get_traits())


def implied_traits(spec: RequestSpec, options: PlacementOptions) -> tuple[str, ...]:
    """Return the traits that a host must have because of what flavor and image ask for otherwise."""
    if not spec.flavor.extra_specs and (spec.image is None or not _asks(spec, options)):
        return ()
    return tuple(sorted({trait for one in PREFILTERS.values() for trait in one(spec, options)}))


def image_traits(spec: RequestSpec, wanted: str) -> tuple[str, ...]:
    """Return the traits that the image itself requires or forbids (`trait:NAME` among its properties)."""
    if spec.image is None:
        return ()
    return tuple(
        key.removeprefix("trait:")
        for key, value in spec.image.properties.items()
        if key.startswith("trait:") and value == wanted
    )


def _asks(spec: RequestSpec, options: PlacementOptions) -> bool:
    image = spec.image
    return image is not None and bool(image.properties or options.query_placement_for_image_type_support)


def _asked(spec: RequestSpec, name: str) -> str | None:
    """Return what the flavor says of `hw:NAME`, or else the image of `hw_NAME`."""
    of_image = spec.image.properties.get(f"hw_{name}") if spec.image is not None else None
    return spec.flavor.extra_specs.get(f"hw:{name}") or of_image


def _is_asked(spec: RequestSpec, name: str) -> bool:
    return (_asked(spec, name) or "").lower() in YES_WORDS


def _require_image_type_support(spec: RequestSpec, options: PlacementOptions) -> Iterator[str]:
    """Require support of the image's disk format; a server that boots from a volume needs none."""
    image = spec.image
    if options.query_placement_for_image_type_support and image is not None and not spec.boot_from_volume:
        yield from _standard(f"COMPUTE_IMAGE_TYPE_{image.disk_format or ''}")


def _transform_image_metadata(spec: RequestSpec, options: PlacementOptions) -> Iterator[str]:
    """Require what the image's buses, models and architectures name."""
    if options.image_metadata_prefilter and spec.image is not None:
        for name, prefix in _IMAGE_TRAITS.items():
            if spec.image.properties.get(name):
                yield from _standard(f"{prefix}_{spec.image.properties[name]}")


def _accelerators(spec: RequestSpec, _options: PlacementOptions) -> Iterator[str]:
    if spec.flavor.extra_specs.get("accel:device_profile"):
        yield os_traits.COMPUTE_ACCELERATORS


def _packed_virtqueue(spec: RequestSpec, _options: PlacementOptions) -> Iterator[str]:
    if _is_asked(spec, "virtio_packed_ring"):
        yield os_traits.COMPUTE_NET_VIRTIO_PACKED


def _ephemeral_encryption(spec: RequestSpec, _options: PlacementOptions) -> Iterator[str]:
    if _is_asked(spec, "ephemeral_encryption"):
        yield os_traits.COMPUTE_EPHEMERAL_ENCRYPTION
        if form := _asked(spec, "ephemeral_encryption_format"):
            yield _named(f"COMPUTE_EPHEMERAL_ENCRYPTION_{form}")


def _virtio_sound(spec: RequestSpec, _options: PlacementOptions) -> Iterator[str]:
    if _asked(spec, "sound_model") == "virtio":
        yield os_traits.COMPUTE_SOUND_MODEL_VIRTIO


def _tpm_secret_security(spec: RequestSpec, _options: PlacementOptions) -> Iterator[str]:
    """Require that the host keeps the secret of an emulated TPM as the flavor says, by default as the user's."""
    if _asked(spec, "tpm_version") or _asked(spec, "tpm_model"):
        security = spec.flavor.extra_specs.get("hw:tpm_secret_security", "user")
        yield _named(f"COMPUTE_SECURITY_TPM_SECRET_SECURITY_{security}")


def _standard(name: str) -> Iterator[str]:
    """Give the trait of that name if there is one: what nobody could have is not asked for, as in Nova."""
    if _named(name) in _STANDARD:
        yield _named(name)


def _named(name: str) -> str:
    return name.replace("-", "_").upper()


PREFILTERS: dict[str, Callable[[RequestSpec, PlacementOptions], Iterator[str]]] = {
    "require_image_type_support": _require_image_type_support,
    "transform_image_metadata": _transform_image_metadata,
    "accelerators_filter": _accelerators,
    "packed_virtqueue_filter": _packed_virtqueue,
    "ephemeral_encryption_filter": _ephemeral_encryption,
    "virtio_sound_filter": _virtio_sound,
    "tpm_secret_security_filter": _tpm_secret_security,
}
"""By Nova's names, in Nova's order."""
