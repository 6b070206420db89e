"""What all platforms promise: legal defaults, own parameters on their axes, loops that the common vector takes."""

from __future__ import annotations

import re

import pytest
from problems import random_csr

from spmark.impls.core.errors import DeviceError, SweepError
from spmark.impls.core.problem import Op, Problem
from spmark.impls.dash.mapping import in_common
from spmark.impls.dash.parameters import OwnParameters
from spmark.impls.runtime.device import find
from spmark.impls.table import PLATFORMS, find_platform
from spmark.impls.tuning.space import key_of

PROBLEMS = [
    Problem(op, random_csr(rows, 70, [5, 0, 30] + [4] * (rows - 3)), width)
    for op in Op
    for rows, width in ((70, 32), (40, 6))
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda one: f"{one.op}-{one.width}")
@pytest.mark.parametrize("name", PLATFORMS)
def test_a_platform_keeps_its_promises(name: str, problem: Problem) -> None:
    platform = find_platform(name)
    assert platform.name == name
    space, default = platform.space(problem), platform.default(problem)
    drawn = space.sample(3, 60)
    assert drawn == platform.space(problem).sample(3, 60)
    assert len({key_of(config) for config in drawn}) == len(drawn) > 1
    assert space.legal(default)
    if name != "cpu":  # half a million configs
        assert key_of(default) in {key_of(config) for config in space.configs()}
    own = OwnParameters(platform.own_axes(problem.op))
    numbers = own.vectors([platform.own(config) for config in drawn])
    assert numbers.shape == (len(drawn), own.size)
    common = [platform.common(config) for config in (default, *drawn)]
    assert all(map(in_common, common))
    together = {(one, *row.tolist()) for one, row in zip(common[1:], numbers, strict=True)}
    assert len(together) > 0.9 * len(drawn), "configs that differ look alike to a model"


@pytest.mark.parametrize("name", PLATFORMS)
def test_digests_tell_operators_and_versions_apart(name: str) -> None:
    platform = find_platform(name)
    digests = {platform.digest(op) for op in Op}
    assert all(re.fullmatch("[0-9a-f]{16}", one) for one in digests)
    assert len(digests) == (1 if name == "spade_sim" else 2)


def test_the_host_is_raced_and_a_reason_stands_for_what_cannot_be_built() -> None:
    problem, platform = PROBLEMS[0], find_platform("cpu")
    huge = {**platform.default(problem), "ksplit": 1 << 16, "formats": "UUUU"}
    found = platform.measure(problem, [platform.default(problem), huge], find("cpu"))
    assert 2 <= len(found[0].samples_us) <= 15, "a busy machine has fewer samples of a slow config"
    assert min(found[0].samples_us) > 0
    assert bool(found[1].samples_us) != bool(found[1].reason)


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_a_device_that_lacks_is_named(name: str) -> None:
    platform = find_platform(name)
    for device, found in ((None, "no device"), (find("host-simt"), "host-simt")):
        with pytest.raises(DeviceError, match=f"expected a {name} device to measure on, found {found}"):
            platform.measure(PROBLEMS[0], [platform.default(PROBLEMS[0])], device)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda one: f"{one.op}-{one.width}")
def test_configs_of_the_gpu_are_plans(problem: Problem) -> None:
    platform, device = find_platform("cuda"), find("host-simt")
    for config in (platform.default(problem), *platform.space(problem).sample(1, 1)):
        platform.plan(problem, device, dict(config))


def test_an_unknown_platform_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SweepError, match="a platform out of cpu, cuda, spade_sim, found 'gpu'"):
        find_platform("gpu")
