from __future__ import annotations

import pytest

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec


@pytest.fixture
def cpu() -> DeviceSpec:
    """Give a CPU that is not this one."""
    return DeviceSpec(
        name="some-cpu",
        kind=DeviceKind.CPU,
        arch="x86_64",
        num_sms=2,
        l2_bytes=1 << 20,
        memory_bytes=1 << 34,
        copy_bytes_per_s=1e10,
        read_bytes_per_s=2e10,
        fma_flops_per_s=3e10,
    )
