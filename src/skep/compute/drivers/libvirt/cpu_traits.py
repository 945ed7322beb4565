"""The traits of CPUs, from the features that libvirt names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from xml.etree import ElementTree as ET

import libvirt

from skep.compute.drivers.libvirt.means import ARCHITECTURE
from skep.compute.drivers.libvirt.options import Options

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


def cpu_features(connection: libvirt.virConnect, capabilities: str, options: Options) -> tuple[str, ...]:
    """Return the features of the CPUs that guests get, those of the model too. Raises libvirt.libvirtError.

    In software they are not those of the host, and QEMU does not say which of them it does: none.
    """
    if options.virt_type != "kvm":
        return ()
    if options.cpu_model in ("", "host-model", "host-passthrough"):
        cpu = ET.fromstring(capabilities).find("host/cpu")  # noqa: S314 - of libvirt
    else:
        cpu = ET.Element("cpu")
        ET.SubElement(cpu, "arch").text = ARCHITECTURE
        ET.SubElement(cpu, "model").text = options.cpu_model
    if cpu is None:
        return ()
    text = ET.tostring(cpu, encoding="unicode")
    whole = connection.baselineCPU([text], libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES)
    expanded = ET.fromstring(whole)  # noqa: S314 - of libvirt
    return tuple(sorted(one.get("name", "") for one in expanded.findall("feature") if one.get("policy") != "disable"))


def cpu_traits(features: Iterable[str]) -> Iterator[str]:
    """Yield the names that traits of these features would have; there may be no such trait."""
    for name in features:
        plain = name.replace("-", "").replace(".", "").upper()
        for trait in OTHER_NAMES.get(name, (plain,)):
            yield PREFIX + trait
