"""Generated loop nests under sanitizers: functions in one executable, which a child process runs on exact buffers."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Op, Problem
from spmark.impls.runtime.toolchain import find_gcc, run_gcc
from spmark.impls.taco_cpu.generate import SIZES, arrays_of, generate
from spmark.impls.taco_cpu.space import Nest
from spmark.impls.taco_cpu.storage import store

OPTIONS = (
    *("-x", "c", "-std=gnu11", "-O0", "-g1", "-fopenmp", "-Wall", "-Werror"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-pie", "-no-pie"),
)
DRIVER = """
#include <stdio.h>
#include <stdlib.h>

// A request: the number of a function, its sizes, the number of its arrays, then the bytes of each; -1 stands for NULL.
int main(void) {
    int64_t function, s[%(sizes)d], count, bytes;
    while (fread(&function, sizeof function, 1, stdin) == 1) {
        void *a[16];
        if (fread(s, sizeof s, 1, stdin) != 1 || fread(&count, sizeof count, 1, stdin) != 1) return 2;
        for (int64_t n = 0; n < count; ++n) {
            if (fread(&bytes, sizeof bytes, 1, stdin) != 1) return 2;
            a[n] = bytes < 0 ? NULL : malloc(bytes);
            if (bytes > 0 && fread(a[n], bytes, 1, stdin) != 1) return 2;
        }
        fprintf(stderr, "function %%d\\n", (int)function);
        switch (function) {
%(calls)s
        }
        fwrite(a[count - 1], 1, bytes, stdout);
        for (int64_t n = 0; n < count; ++n) free(a[n]);
    }
    return 0;
}
"""


def compile_nests(nests: Sequence[Nest], executable: Path) -> None:
    """Compile the functions of nests, with a driver, under AddressSanitizer and UndefinedBehaviorSanitizer."""
    # Every source defines `least`; here they stand in one text.
    sources = [f"#define least least_{n}\n{generate(nest)}#undef least\n" for n, nest in enumerate(nests)]
    calls = []
    for number, nest in enumerate(nests):
        passed = [f"s[{n}]" for n in range(len(SIZES))] + [f"a[{n}]" for n in range(len(arrays_of(nest)))]
        calls.append(f"        case {number}: {nest.name}({', '.join(passed)}); break;")
    driver = DRIVER % {"sizes": len(SIZES), "calls": "\n".join(calls)}
    command = [find_gcc().path, *OPTIONS, "-", "-o", str(executable)]
    run_gcc(command, "\n".join([*sources, driver]), "generated C under sanitizers", str(executable))


def run_nests(
    executable: Path, requests: Iterable[tuple[int, Nest, Config, Problem, Sequence[np.ndarray]]]
) -> list[np.ndarray]:
    """Run functions on problems in one child process, each result filled with NaN before.

    Parameters
    ----------
    requests : iterable of (number of the nest in the executable, nest, config, problem, operands)
    """
    data, shapes = [], []
    for number, nest, config, problem, operands in requests:
        data.append(_request(number, nest, config, problem, operands))
        shapes.append(problem.out_shape)
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0:redzone=256", "UBSAN_OPTIONS": "print_stacktrace=1"}
    done = subprocess.run(
        [executable], input=b"".join(data), capture_output=True, env=environment, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    found = np.frombuffer(done.stdout, np.float32)
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    assert found.size == ends[-1]
    return [part.reshape(shape) for part, shape in zip(np.split(found, ends[:-1]), shapes, strict=True)]


def _request(number: int, nest: Nest, config: Config, problem: Problem, operands: Sequence[np.ndarray]) -> bytes:
    held = store(problem.matrix, nest, config, 1 << 24)
    names = ("dense",) if problem.op is Op.SPMM else ("x", "y")
    arrays: dict[str, Any] = {**held, **dict(zip(names, operands, strict=True))}
    arrays |= {"scale": held["values"] if problem.scaled else None}
    arrays |= {"out": np.full(problem.out_shape, np.nan, np.float32)}
    num_rows, num_cols = problem.matrix.shape
    sizes = {**config, "threads": 2, "num_rows": num_rows, "num_cols": num_cols, "width": problem.width}
    passed = [arrays[name] for name in arrays_of(nest)]
    parts = [struct.pack(f"={len(SIZES) + 2}q", number, *(sizes[name] for name in SIZES), len(passed))]
    for array in passed:
        parts.append(struct.pack("=q", -1 if array is None else array.nbytes))
        parts.append(b"" if array is None else array.tobytes())
    return b"".join(parts)
