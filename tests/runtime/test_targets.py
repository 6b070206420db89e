"""Ring one: kernels compile for every target, within their limits on registers and spills."""

from __future__ import annotations

import csv
from itertools import product
from pathlib import Path

import pytest
from compilers import needs_compilers
from runtime.kernel_tables import templates, workers
from sampling import ARCHES, compiled, others

from spmark.impls.core.errors import CompileError
from spmark.impls.runtime.compile import compile_many
from spmark.impls.runtime.template import Instance, KernelTemplate

pytestmark = needs_compilers
OF_EACH_ARCH = [pytest.param(arch, marks=[pytest.mark.full] * (arch != "sm_90")) for arch in ARCHES]
TURNS = ("sm_90", "sm_80", "sm_90", "sm_100")
"""What `make test-rest` compiles instances beyond the samples for, in turns. It also compiles all samples for
sm_90, on which most is measured.
"""
OTHERS = (pytest.mark.full, pytest.mark.timeout(1200))
REGISTERS = Path(__file__).parent / "registers.tsv"
"""By kernel, or by kernel and first template argument: the registers and spilled bytes that no instance may exceed on
any architecture. A kernel without a line may take all registers and spill nothing."""
CALIBRATE = Path(__file__).parents[2] / "impls" / "runtime" / "kernels" / "calibrate.cu"


@pytest.mark.parametrize("sampled", [True, pytest.param(False, marks=OTHERS)], ids=["sample", "others"])
@pytest.mark.parametrize("arch", OF_EACH_ARCH)
def test_every_instance_compiles_within_its_limits(arch: str, sampled: bool) -> None:
    wanted = list(templates())
    sample = set().union(*(compiled(t) for t in wanted))
    every = [i for t in wanted for i in t.instances()]
    if sampled:
        instances = [i for i in every if (i, arch) in sample]
    else:
        sampled_anywhere = {i for i, _ in sample}
        left = [i for t in wanted for i in others(list(t.instances()), sampled_anywhere)]
        instances = [i for number, i in enumerate(left) if TURNS[number % len(TURNS)] == arch]
        if arch == "sm_90":
            instances += [i for i in every if i in sampled_anywhere and (i, arch) not in sample]
    assert {i.template for i in instances} == set(wanted) or not sampled
    assert len(instances) > 50
    limits = {row["kernel"]: (int(row["registers"]), int(row["spilled bytes"])) for row in registers()}
    binaries = compile_many([(i.template.source, i.expression, arch) for i in instances], workers())
    for instance, binary in zip(instances, binaries, strict=True):
        assert not isinstance(binary, CompileError), binary
        of_kernel = limits.get(instance.template.name, (255, 0))
        most, most_spilled = limits.get(instance.expression.split(",", 1)[0], of_kernel)
        taken, spilled = binary.registers, binary.spill_bytes  # of all that it holds, what a failure should show
        assert 0 < taken <= most, instance.expression
        assert spilled <= most_spilled, instance.expression


def registers() -> list[dict[str, str]]:
    with REGISTERS.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_every_limit_is_of_a_kernel() -> None:
    every = list(templates())
    known = {t.name for t in every} | {f"{t.name}<{t.space['T'][0]}" for t in every if "T" in t.space}
    assert {row["kernel"] for row in registers()} <= known


@pytest.mark.full
@pytest.mark.parametrize("arch", OF_EACH_ARCH)
def test_the_calibration_kernels_compile(arch: str) -> None:
    rates = ("read_all<4, 512>", "copy_all<4, 512>", "multiply_add<512>", "matrix_multiply<512>")
    names = (*rates, "nothing<32>", "follow_chain<32>")
    gathers = (f"gather_rows<{vectors}, 2, 256>" for vectors in (4, 8, 16, 32, 64, 128))
    for binary in compile_many([(CALIBRATE, name, arch) for name in (*names, *gathers)], workers()):
        assert not isinstance(binary, CompileError), binary
        assert binary.spill_bytes == 0


@pytest.mark.full
def test_legal_says_what_the_static_asserts_say() -> None:
    """Every combination that Python calls illegal is refused by the compiler too, for one of its static asserts."""
    for template in templates():
        illegal = _illegal(template)[:3]
        for binary in compile_many([(template.source, expression, "sm_90") for expression in illegal], workers()):
            assert isinstance(binary, CompileError), f"{template.name} compiles although Python calls it illegal"
            assert "static assertion failed" in binary.log


def _illegal(template: KernelTemplate) -> list[str]:
    everything = [Instance(template, arguments).expression for arguments in product(*template.space.values())]
    legal = {i.expression for i in template.instances()}
    return [expression for expression in everything if expression not in legal]
