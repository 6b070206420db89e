"""The tuning half and the judging half of the real matrices: as the script draws them, disjoint, no family in both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType

import pytest
from scripts_by_name import FOLDER, load_script

from spmark.datasets.origins import origins, other_ids
from spmark.datasets.sweep.model import MatrixSpec
from spmark.datasets.sweep.reading import packaged_lists, packaged_sweeps, read_list, read_sweep
from spmark.studies.table import CONTRACTS, find_contract


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("split_halves", FOLDER / "studies")


def test_the_lists_are_those_that_the_script_draws(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = script.FOLDER
    monkeypatch.setattr(script, "FOLDER", tmp_path)
    script.main()
    drawn = sorted(tmp_path.iterdir())
    assert len(drawn) == 5
    for file in drawn:
        assert file.read_text() == (committed / file.name).read_text(), (
            f"run scripts/studies/split_halves.py: {file.name}"
        )
    layers = {alias for one in origins().values() for alias in one.aliases if one.source == "dlmc"}
    aliases = {alias for one in origins().values() for alias in one.aliases}
    assert {f"mirror/{name}" for name in set().union(*script.halves().values())} == aliases - layers


def short_names(matrices: Iterable[MatrixSpec]) -> list[str]:
    """Give the names that the script uses: those in the list of origins that are older than origins."""
    return [next(other_ids(one)).partition("/")[2] for one in matrices]


def test_every_family_is_in_one_half(script: ModuleType) -> None:
    halves = script.halves()
    assert not set(halves["tuning"]) & set(halves["judging"])
    assert abs(len(halves["tuning"]) - len(halves["judging"])) <= 1
    for families in script.GRAPHS.values():
        for family in families:
            assert any(set(family) <= set(names) for names in halves.values()), family


def test_every_class_is_in_both_halves(script: ModuleType) -> None:
    for families in script.GRAPHS.values():
        members = {name for family in families for name in family}
        assert all(members & set(names) for names in script.halves().values())


@pytest.mark.parametrize("half", ["tuning", "judging"])
def test_sweeps_of_a_half_hold_its_matrices(script: ModuleType, half: str) -> None:
    sweep = read_sweep(packaged_sweeps()[f"{half}_graphs"])
    assert short_names(sweep.matrices) == script.halves()[half]
    layers = short_names(read_sweep(packaged_sweeps()[f"{half}_layers"]).matrices)
    assert len(layers) == {"tuning": 56, "judging": 15}[half]
    assert all(any(fnmatch(name, pattern) for pattern in script.LAYERS[half]) for name in layers)


def judged(pattern: str) -> list[str]:
    """Give the matrices of the judging half that a pattern of ``spmark study label`` names."""
    lists = packaged_lists()
    ids = [spec.id for half in ("judging_graphs", "judging_layers") for spec in read_list(lists[half])]
    if pattern in lists:
        return sorted(set(ids) & {spec.id for spec in read_list(lists[pattern])})
    return [one for one in ids if fnmatch(one, pattern if "/" in pattern else f"{pattern}/*")]


@pytest.mark.parametrize("name", CONTRACTS["labels"])
def test_no_study_measures_the_judging_half_by_default(name: str) -> None:
    patterns: Sequence[str] = find_contract("labels", name).patterns
    formulas = [pattern for pattern in patterns if pattern.startswith("seeded/")]
    assert not [name for pattern in patterns if pattern not in formulas for name in judged(pattern)]
