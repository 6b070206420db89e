"""Samples of kernel tables: few instances that hold every pair of values that two template parameters can have.

`make test` walks the samples, `make test-rest` the others (`tables.every_instance`, `runtime/test_targets.py`), in one
of the 16-bit types.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations

from spmark.impls.runtime.template import NARROW, Instance, KernelTemplate

ARCHES = ("sm_80", "sm_90", "sm_100")
"""What every kernel is compiled for."""


def covering(instances: Sequence[Instance]) -> list[Instance]:
    """Choose instances that hold every value of every parameter, and every pair of values that any instance holds.

    The choice is greedy: the instance that adds the most pairs comes next, the first in the table among equals. Hence
    one table has one sample, on every machine and in every process.

    Parameters
    ----------
    instances : sequence of Instance
        A table of one template, in its order.
    """
    held = [_pairs(instance) for instance in instances]
    missing = set[object]().union(*held)
    chosen = []
    while missing:
        best = max(range(len(held)), key=lambda at: len(held[at] & missing))  # the first of the largest
        chosen.append(instances[best])
        missing -= held[best]
    return chosen


def _pairs(instance: Instance) -> set[object]:
    """Give the values of an instance by position, alone and in pairs."""
    values = list(enumerate(map(str, instance.arguments)))  # False is not 0 here
    return {*values, *combinations(values, 2)}


def others(instances: Sequence[Instance], sample: Collection[Instance]) -> list[Instance]:
    """Choose what a sample leaves out; of instances that differ in their 16-bit type alone one, the types by turns.

    Their code is one but for conversions, and the sample has each type with every value of the other parameters.
    """
    alike: dict[tuple[object, ...], list[Instance]] = {}
    for instance in instances:
        if instance not in sample:
            arguments = tuple("16 bits" if argument in NARROW else argument for argument in instance.arguments)
            alike.setdefault(arguments, []).append(instance)
    return [of_one[turn % len(of_one)] for turn, of_one in enumerate(alike.values())]


def compiled(template: KernelTemplate) -> set[tuple[Instance, str]]:
    """Spread a template's sample over the architectures: each instance on one, and something on each of them."""
    sample = covering(list(template.instances()))
    turns = range(max(len(sample), len(ARCHES)))
    return {(sample[turn % len(sample)], ARCHES[turn % len(ARCHES)]) for turn in turns}
