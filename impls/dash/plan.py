"""DASH as a search: the platform's model orders drawn configs, the best of them are measured, and the fastest is built.

"DASH: Data-efficient learned cost models for sparse matrix computations on emerging hardware platforms", section 4.2:
the best of the five configs that the model ranks first, or the first alone.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.digest import implementation_version
from spmark.impls.core.errors import not_installed
from spmark.impls.core.interfaces import Built, Config, Plan, Search
from spmark.impls.core.problem import Op, Problem
from spmark.impls.dash.cost_models import platform_scores
from spmark.impls.dash.finding import find_model, why_missing
from spmark.impls.dash.withtorch import load_torch
from spmark.impls.table import create, find_platform
from spmark.impls.tuning.cache import PlanCache, searched
from spmark.impls.tuning.platform import PlanningPlatform
from spmark.impls.tuning.space import key_of
from spmark.impls.tuning.strategies import first_built

_PLATFORMS = {DeviceKind.CUDA: "cuda", DeviceKind.HOST_SIMT: "cuda", DeviceKind.CPU: "cpu"}


@dataclass(frozen=True)
class Dash:
    """The fastest of the few configs of a platform that its model scores best: loop nests on a CPU, templates on a GPU.

    Raises
    ------
    ValueError
        A tunable has an illegal value; says which and why.
    """

    name: ClassVar[str] = "dash"
    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT, DeviceKind.CPU})
    needs: ClassVar[tuple[str, ...]] = ("torch", "safetensors")
    extra: ClassVar[str] = "dash"

    top: int = 5
    """Configs that are measured: the paper has 1 and 5."""
    configs: int = 1000
    """Configs that are drawn of the platform's space beside its default, or all of a smaller space."""
    seed: int = 0
    """Seed of the draw."""

    def __post_init__(self) -> None:
        for name, least in (("top", 1), ("configs", 0), ("seed", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"expected {name} of at least {least}, found {getattr(self, name)}")

    def stored_as(self, problem: Problem, device: DeviceSpec, config: Config) -> Any:
        """Convert as the platform's implementation does: loop nests on a CPU, templates elsewhere."""
        how: Any = create("taco_cpu" if device.kind is DeviceKind.CPU else "sparsetir")
        return how.stored_as(problem, device, config)

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse what the platform refuses, a missing library, and a platform without a model."""
        platform: PlanningPlatform = find_platform(_PLATFORMS[device.kind])
        if lacking := not_installed(self.needs, self.extra):
            return lacking
        if find_model(platform.name, problem.op) is None:
            return why_missing(platform.name, problem.op)
        return platform.unsupported(problem, device)

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Score, measure the best, and build the fastest; on the host ring and without non-zeros nothing is measured.

        Raises
        ------
        BuildError
            The model's file is damaged or of another space, or none of the configs can be built.
        """
        platform: PlanningPlatform = find_platform(_PLATFORMS[device.kind])
        own, apart = Built(), Built()
        with own.phase("compile"):
            # What a process pays once: PyTorch, and the model's file.
            on_gpu = device.kind is DeviceKind.CUDA and load_torch().cuda.is_available()
            scores = platform_scores(platform, problem.op, "cuda" if on_gpu else "cpu")

        def ranked() -> list[tuple[Config, float]]:
            with apart.phase("features"):
                matrix = scores.embed(problem)
            with apart.phase("select"):
                drawn = [platform.default(problem), *platform.space(problem).sample(self.seed, self.configs)]
                configs = list({key_of(config): config for config in drawn}.values())
                found = scores.rank(matrix, configs)
                return [(configs[at], float(found[at])) for at in np.argsort(found, kind="stable")]

        def search() -> tuple[Config, Built, Search]:
            configs = ranked()
            told = {key_of(config): score for config, score in configs}
            race = platform.open_race(problem, device, predict=lambda one: told[key_of(one)], finalists=self.top)
            first_built(race, [config for config, _ in configs], self.top)
            return *race.finish(), race.describe(cores=load_torch().get_num_threads(), eligible=len(configs))

        def legal(config: Config) -> bool:
            return key_of(config) == key_of(platform.default(problem)) or config in platform.space(problem)

        if device.kind is DeviceKind.HOST_SIMT or problem.matrix.nnz == 0:
            plan = platform.plan(problem, device, ranked()[0][0])
            plan.charge(apart.phases_s)
        else:
            version = implementation_version(type(platform).__module__)
            pinned = {**asdict(self), "model": scores.digest, "platform": version}
            kept, won = searched(PlanCache(self.name, problem, device, pinned), search, legal, apart.phases_s)
            plan = won or platform.plan(problem, device, kept.config)
            plan.search = kept.search
            plan.charge(kept.phases_s)
        plan.charge(own.phases_s)
        plan.config["model"] = scores.digest[:16]
        return plan
