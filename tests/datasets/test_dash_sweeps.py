"""The matrices of learned cost models: many families to learn from, and nothing of what judges among them."""

from __future__ import annotations

from spmark.datasets.sweep import MatrixSpec, Sweep


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


def test_those_that_judge_are_the_judging_half_and_real() -> None:
    assert {spec.id for spec in matrices("evaluation")} == {spec.id for spec in Sweep.load("judging_graphs").matrices}
    assert {spec.source for spec in matrices("evaluation")} == {"mirror"}
