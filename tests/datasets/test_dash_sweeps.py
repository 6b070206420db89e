"""The matrices of learned cost models: many families to learn from, and nothing of what judges among them."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest
from scripts_by_name import FOLDER, load_script

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.origins import origins, other_ids
from spmark.datasets.sweep.model import MatrixSpec, Sweep


def family(spec: MatrixSpec) -> str:
    """Give the generator of a seeded matrix: the formula or kind, or the source that has a single one."""
    stem = spec.name.split("_4096")[0]
    kind = "_".join(word for word in stem.split("_") if word.isalpha() and word not in {"short", "small", "thin"})
    return spec.source if spec.source == "rmat" else f"{spec.source}/{kind}"


def matrices(name: str) -> tuple[MatrixSpec, ...]:
    return Sweep.load(f"dash_{name}").matrices


def test_sources_are_seeded_matrices_of_many_families_by_turns() -> None:
    source = matrices("source")
    assert len(source) == 100
    families = [family(spec) for spec in source]
    assert len(set(families)) == len(set(families[:14])) == 14
    assert {spec.source for spec in source} == {"seeded", "patterns", "rmat"}


def test_no_matrix_serves_two_ends() -> None:
    source, target, evaluation = ({spec.id for spec in matrices(one)} for one in ("source", "target", "evaluation"))
    assert len(target) == 5
    assert not source & target
    assert not (source | target) & evaluation


def test_those_that_judge_are_sixty_real_matrices_of_no_family_to_learn_from() -> None:
    script = load_script("split_halves", FOLDER / "studies")
    evaluation = matrices("evaluation")
    names = {next(other_ids(spec)).removeprefix("mirror/") for spec in evaluation}
    assert len(names) == len(evaluation) == 60
    real_sources = {origin.source for origin in origins().values()}
    assert {spec.source for spec in evaluation} <= real_sources
    layers = {name for name in names if any(fnmatch(name, one) for one in script.LAYERS["judging"])}
    assert len(layers) == 15
    real = [family for what, families in script.GRAPHS.items() if what != script.SEEDED for family in families]
    families = [set(family) for family in real if names & set(family)]
    assert names - layers <= set().union(*families)
    assert not {spec.source for one in ("source", "target") for spec in matrices(one)} & {"mirror", *real_sources}


def test_graphs_that_judge_are_the_real_ones_of_the_judging_half_and_few_others() -> None:
    script = load_script("split_halves", FOLDER / "studies")
    names, halves = set(script.evaluated()), script.halves()
    assert set(halves["judging"]) - names == {*script.GRAPHS[script.SEEDED][0], "bfly"}
    others = names & set(halves["tuning"])
    assert len(others) == 14
    assert all(len(others & set(family)) <= 1 for families in script.GRAPHS.values() for family in families)


@pytest.mark.full
def test_no_two_that_judge_have_one_pattern(mirror: Path) -> None:
    del mirror  # skips where there is none
    patterns = [load_matrix(spec, Cache.default(), 0).csr.hash for spec in matrices("evaluation")]
    assert len(set(patterns)) == 60
