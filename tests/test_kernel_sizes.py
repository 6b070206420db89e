"""scripts/kernel_sizes.py: code bytes of a made-up ELF file, occupancy by hand, and the facts of compiled instances."""

from __future__ import annotations

import struct
from types import ModuleType

import pytest
from compilers import needs_compilers
from scripts_by_name import load_script

from spmark.impls.kernels.plain import SDDMM_PLAIN, SPMM_PLAIN
from spmark.impls.kernels.zeroing import ZERO_ROWS
from spmark.impls.runtime.compile import Binary


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("kernel_sizes")


def test_code_is_the_text_sections_alone(script: ModuleType) -> None:
    names = b"\0.shstrtab\0.text.one\0.text.two\0.debug_line\0"
    sections = [(0, 0), (names.index(b".shstrtab"), len(names)), (names.index(b".text.one"), 300)]
    sections += [(names.index(b".text.two"), 50), (names.index(b".debug"), 7000)]
    head = bytearray(64)
    struct.pack_into("<Q", head, 40, 64 + len(names))
    struct.pack_into("<HHH", head, 58, 64, len(sections), 1)
    table = b"".join(struct.pack("<IIQQQQ", at, 0, 0, 0, 64, size).ljust(64, b"\0") for at, size in sections)
    assert script.code_bytes(bytes(head) + names + table) == 350


@pytest.mark.parametrize(
    ("registers", "shared", "threads", "share"),
    [
        (32, 0, 128, 1.0),
        (33, 0, 128, 12 * 128 / 2048),  # 40 registers a thread: 12 blocks of 4 warps
        (255, 0, 256, 256 / 2048),
        (16, 48 << 10, 128, 4 * 128 / 2048),
        (16, 0, 32, 32 * 32 / 2048),
    ],
)
def test_occupancy_by_hand(script: ModuleType, registers: int, shared: int, threads: int, share: float) -> None:
    binary = Binary(b"", "name", registers, 0, shared)
    assert script.occupancy(binary, threads, "sm_90") == pytest.approx(share)


def test_kernels_of_the_public_api_are_seen(script: ModuleType) -> None:
    assert {*SPMM_PLAIN.instances(), *SDDMM_PLAIN.instances()} <= set(script.instances())


@needs_compilers
def test_every_instance_has_a_line(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    every = list(ZERO_ROWS.instances())
    assert set(every) <= set(script.instances())
    monkeypatch.setattr(script, "instances", lambda: every)
    facts = list(script.lines("sm_90"))
    assert [fact["kernel"] for fact in facts] == [instance.expression for instance in every]
    assert all(fact["registers"] > 0 and fact["code_bytes"] > 0 and 0 < fact["occupancy"] <= 1 for fact in facts)
