"""Samples of kernel tables hold what they must, and are the same everywhere."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest
from runtime.kernel_tables import templates
from sampling import ARCHES, compiled, covering

from spmark.impls.runtime.template import KernelTemplate

TABLES = pytest.mark.parametrize("template", templates(), ids=lambda template: template.name)


@TABLES
def test_every_value_of_every_axis_is_in_the_sample(template: KernelTemplate) -> None:
    instances = list(template.instances())
    sample = covering(instances)
    for axis in template.space:
        assert {i.values[axis] for i in sample} == {i.values[axis] for i in instances}
    assert set(sample) <= set(instances)
    assert len(set(sample)) == len(sample)


@TABLES
def test_every_legal_pair_of_values_is_in_the_sample(template: KernelTemplate) -> None:
    for axes in combinations(template.space, 2):
        held, legal = (
            {tuple(i.values[axis] for axis in axes) for i in some}
            for some in (covering(list(template.instances())), template.instances())
        )
        assert held == legal


@TABLES
def test_every_template_is_compiled_for_every_architecture(template: KernelTemplate) -> None:
    pairs = compiled(template)
    assert {arch for _, arch in pairs} == set(ARCHES)
    assert {i for i, _ in pairs} == set(covering(list(template.instances())))
    assert len(pairs) <= max(len(ARCHES), len({i for i, _ in pairs})), "most instances are compiled once"


def test_samples_are_much_smaller_than_tables() -> None:
    tables = [list(template.instances()) for template in templates()]
    large = [table for table in tables if len(table) > 20]
    assert len(large) > 5
    assert sum(len(covering(table)) for table in large) < 0.4 * sum(map(len, large))


def test_a_space_of_two_axes_is_taken_whole_and_a_value_that_few_hold_is_not_missed() -> None:
    square = KernelTemplate(Path("k.cu"), "k", {"a": (0, 1, 2), "threads": (32, 64)})
    assert set(covering(list(square.instances()))) == set(square.instances())
    rare = KernelTemplate(
        Path("k.cu"),
        "k",
        {"a": (0, 1, 2, 3), "b": (False, True), "c": (1, 2), "threads": (32,)},
        legal=lambda values: values["a"] != 3 or (values["b"] and values["c"] == 2),
    )
    sample = covering(list(rare.instances()))
    assert [i.expression for i in sample if i.values["a"] == 3] == ["k<3, true, 2, 32>"]
    assert len(sample) < len(list(rare.instances()))
    assert covering([]) == []


def test_a_value_is_told_from_another_that_equals_it() -> None:
    mixed = KernelTemplate(Path("k.cu"), "k", {"flag": (False, 0, True, 1), "threads": (32,)})
    assert len(covering(list(mixed.instances()))) == 4


def test_a_sample_is_the_same_in_another_process_with_other_hashes() -> None:
    script = (
        "from runtime.kernel_tables import templates\nfrom sampling import compiled, covering\n"
        "for t in templates():\n    print([i.expression for i in covering(list(t.instances()))],"
        " sorted((i.expression, a) for i, a in compiled(t)))\n"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONPATH": ":".join(path for path in sys.path if path), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1
    assert said.pop().count("\n") == len(templates())
