from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import DeviceError


def test_save_and_load(cpu: DeviceSpec, tmp_path: Path) -> None:
    spec = cpu.model_copy(update={"tables": {"gather": [1.5, 2.5]}, "tensor_flops_per_s": {"float16": 1e15}})
    spec.save(tmp_path / "spec.json")
    assert DeviceSpec.load(tmp_path / "spec.json") == spec
    assert (tmp_path / "spec.json").read_text().endswith("}\n")


def test_rates_by_size_survive_a_file(cpu: DeviceSpec, tmp_path: Path) -> None:
    rates = {
        "cold_launch_s": 2e-6, "cold_load_s": 6e-7, "l2_gather_bytes_per_s": {64: 4e12, 2048: 8e12},
        "l1_gather_bytes_per_s": {64: 9e12}, "table_gather_bytes_per_s": {1 << 25: 8e12, 1 << 28: 4e12},
    }  # fmt: skip
    spec = cpu.model_copy(update=rates)
    spec.save(tmp_path / "spec.json")
    assert DeviceSpec.load(tmp_path / "spec.json") == spec


def test_what_is_fetched_again_is_no_more_than_all_of_it(cpu: DeviceSpec) -> None:
    rates = {"read_bytes_per_s": 4e12, "table_gather_bytes_per_s": {1 << 25: 8e12, 1 << 28: 3e12}}
    spec = cpu.model_copy(update=rates)
    assert [spec.refetched_share(size) for size in spec.table_gather_bytes_per_s] == [0.5, 1.0]


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


@pytest.mark.parametrize(
    ("arch", "number"), [("sm_90", 90), ("sm_90a", 90), ("sm_100", 100), ("x86_64", 0), ("sm_", 0), ("sm_x", 0)]
)
def test_compute_capability(cpu: DeviceSpec, arch: str, number: int) -> None:
    assert cpu.model_copy(update={"arch": arch}).compute_capability == number


def test_flops_take_the_faster_unit(cpu: DeviceSpec) -> None:
    spec = cpu.model_copy(update={"tensor_flops_per_s": {"float16": 9e14, "float32": 1.0}})
    assert spec.flops_per_s("float16") == 9e14
    assert spec.flops_per_s("float32") == 3e10
