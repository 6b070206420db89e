"""Compile every instance of every kernel for one architecture, and write what each takes of a multiprocessor.

    python scripts/kernel_sizes.py --arch sm_90 --out kernels.jsonl

One line of JSON an instance: registers and bytes spilled by a thread, static shared memory of a block, bytes of machine
code, and occupancy. Occupancy is resident threads over the most that a multiprocessor of sm_80, sm_90 or sm_100 holds,
as registers, static shared memory and the size of a block decide it. Dynamic shared memory is chosen at launch and left
out. No GPU is needed.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from spmark.impls.core.errors import CompileError
from spmark.impls.kernels.shared import SHARED
from spmark.impls.runtime.compile import Binary
from spmark.impls.runtime.compile_pool import compile_many
from spmark.impls.runtime.template import Instance
from spmark.impls.table import IMPLEMENTATIONS, create

THREADS, REGISTERS, BLOCKS = 2048, 65536, 32
"""Of a multiprocessor of sm_80, sm_90 and sm_100."""
SHARED_BYTES = {"sm_80": 164 << 10, "sm_90": 228 << 10, "sm_100": 228 << 10}
_BLOCK_SHARED = 1 << 10
"""Bytes of shared memory that the system takes for each block."""
_REGISTER_UNIT = 256
"""Registers of a warp come in so many."""
_WARP = 32


def instances() -> list[Instance]:
    """List the instances of all implementations' kernels and of those that they share; each once."""
    templates = {*SHARED, *(template for name in IMPLEMENTATIONS for template in create(name).kernels)}
    every = (instance for template in templates for instance in template.instances())
    return sorted(every, key=lambda instance: (str(instance.template.source), instance.expression))


def code_bytes(cubin: bytes) -> int:
    """Add up the sections ``.text.*`` of a 64-bit ELF file: machine code, without debugging information."""
    (table,) = struct.unpack_from("<Q", cubin, 40)
    entry, count, names = struct.unpack_from("<HHH", cubin, 58)
    headers = [struct.unpack_from("<IIQQQQ", cubin, table + place * entry) for place in range(count)]
    strings = headers[names][4]
    return sum(size for name, _, _, _, _, size in headers if cubin[strings + name :].startswith(b".text."))


def occupancy(binary: Binary, threads: int, arch: str) -> float:
    """Give resident threads over the most; a warp's registers are rounded up to whole units."""
    of_warp = -(-binary.registers * _WARP // _REGISTER_UNIT) * _REGISTER_UNIT
    by_registers = REGISTERS // of_warp // (threads // _WARP)
    by_shared = SHARED_BYTES[arch] // (binary.shared_bytes + _BLOCK_SHARED)
    return min(THREADS // threads, BLOCKS, by_registers, by_shared) * threads / THREADS


def lines(arch: str) -> Iterator[dict[str, object]]:
    """Give the facts of every instance.

    Raises
    ------
    CompileError
        An instance does not compile.
    """
    every = instances()
    binaries = compile_many([(instance.template.source, instance.expression, arch) for instance in every])
    for instance, binary in zip(every, binaries, strict=True):
        if isinstance(binary, CompileError):
            raise binary
        yield {
            "kernel": instance.expression,
            "arch": arch,
            "threads": instance.threads,
            "registers": binary.registers,
            "spill_bytes": binary.spill_bytes,
            "shared_bytes": binary.shared_bytes,
            "code_bytes": code_bytes(binary.cubin),
            "occupancy": round(occupancy(binary, instance.threads, arch), 4),
        }


def main() -> None:
    """Write what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", choices=sorted(SHARED_BYTES), default="sm_90")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    facts = list(lines(args.arch))
    args.out.write_text("".join(json.dumps(fact) + "\n" for fact in facts), encoding="utf-8")
    sys.stdout.write(f"{len(facts)} instances, {args.out}\n")


if __name__ == "__main__":
    main()
