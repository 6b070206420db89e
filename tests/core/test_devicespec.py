from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import DeviceError


def test_save_and_load(cpu: DeviceSpec, tmp_path: Path) -> None:
    rates = {
        "tensor_flops_per_s": {"float16": 1e15}, "cold_launch_s": 2e-6, "cold_load_s": 6e-7,
        "l2_gather_bytes_per_s": {64: 4e12, 2048: 8e12}, "l1_gather_bytes_per_s": {64: 9e12},
        "table_gather_bytes_per_s": {1 << 25: 8e12, 1 << 28: 4e12},
    }  # fmt: skip
    spec = cpu.model_copy(update=rates)
    spec.save(tmp_path / "spec.json")
    assert DeviceSpec.load(tmp_path / "spec.json") == spec


@pytest.mark.parametrize(
    ("change", "field"),
    [({"num_sms": 0}, "num_sms"), ({"kind": "tpu"}, "kind"), ({"cores": 2}, "cores"), ({"l2_bytes": -1}, "l2_bytes")],
)
def test_load_names_the_file_and_the_field(cpu: DeviceSpec, change: dict[str, Any], field: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(json.loads(cpu.model_dump_json()) | change))
    with pytest.raises(DeviceError, match=rf"spec\.json: expected a device spec(.|\n)*{field}"):
        DeviceSpec.load(path)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"\x00", b"\xff\xfe", b"[" * 100_000, b'{"num_sms": 1' + b"0" * 5000 + b"}"]
)
def test_load_refuses_what_is_no_spec(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_bytes(text)
    with pytest.raises(DeviceError, match=r"spec\.json: expected a device spec"):
        DeviceSpec.load(path)


def test_load_of_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="expected a device spec, found no such file"):
        DeviceSpec.load(tmp_path / "none.json")
