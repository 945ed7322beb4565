"""The traits of CPUs, from the features that libvirt names. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

PREFIX = "HW_CPU_X86_"
OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "aes": ("AESNI",),
    "amd-no-ssb": ("AMD_NO_SSB",),
    "amd-ssbd": ("AMD_SSBD",),
    "bmi1": ("BMI",),
    "fma": ("FMA3",),
    "gfni": ("AVX512GFNI",),
    "hle": ("TSX",),
    "ibpb": ("AMD_IBPB",),
    "md-clear": ("INTEL_MD_CLEAR",),
    "pcid": ("INTEL_PCID",),
    "pclmuldq": ("CLMUL",),
    "pni": ("SSE3",),
    "rtm": ("TSX",),
    "sha-ni": ("SHA",),
    "spec-ctrl": ("INTEL_SPEC_CTRL",),
    "ssbd": ("INTEL_SSBD",),
    "svm": ("SVM", "AMD_SVM"),
    "vaes": ("AVX512VAES",),
    "virt-ssbd": ("AMD_VIRT_SSBD",),
    "vmx": ("VMX", "INTEL_VMX"),
    "vpclmulqdq": ("AVX512VPCLMULQDQ",),
}
"""Features of libvirt whose traits have another name; that of all others is the feature's, without `-` and `.`."""


def cpu_traits(features: Iterable[str]) -> Iterator[str]:
    """Yield the names that traits of these features would have; there may be no such trait."""
    for name in features:
        plain = name.replace("-", "").replace(".", "").upper()
        for trait in OTHER_NAMES.get(name, (plain,)):
            yield PREFIX + trait
