"""Split the real matrices into a tuning half and a judging half, by family, and write both as lists for sweeps.

    python scripts/studies/split_halves.py

Families and patterns use the short names that the list of origins has as aliases; the lists name origins.

Fits and searches for a release use the tuning half and seeded matrices; the judging half only judges. Matrices of one
origin are alike, so that a family goes to one half as a whole. Within each class a seed draws the order of the
families, and each family goes to the half that has fewer matrices of the class so far.

The evaluation of learned cost models needs 60 real matrices. Of the judging half, the graphs of the class "generated"
are left out: seeded matrices, which these models learn from, are their kin, and two of them have one pattern. This
leaves 46. The other 14 are drawn from real families of the tuning half, classes by turns and one matrix of a family. No
such model is trained on a real matrix, so that the tuning half has no kin in their training either. What is fitted on
the tuning half must not be judged on these 14.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import zip_longest
from pathlib import Path

import numpy as np
import yaml

from spmark.datasets.origins import find_origin, origins

SEED = 2026
FOLDER = Path(__file__).parents[2] / "datasets/sweeps/matrices"
HALVES = ("tuning", "judging")
GRAPHS: dict[str, list[list[str]]] = yaml.safe_load(Path(__file__).with_name("families.yaml").read_text("utf-8"))
"""Families of each class."""
SEEDED = "generated"
"""The class whose matrices somebody's program made."""
EVALUATED = 45
"""Graphs that judge learned cost models, beside the layers of the judging half."""
LAYERS = {"tuning": ["tf__mag__*"], "judging": ["rn50__*", "tf__l0__*", "tf__rand__*", "tf__vd__*"]}
"""One pruned network against the others: a network and the way in which it was pruned. Nothing is drawn."""


def halves() -> dict[str, list[str]]:
    """Give the names of each half, sorted."""
    random = np.random.default_rng(SEED)
    chosen: dict[str, list[str]] = {half: [] for half in HALVES}
    for families in GRAPHS.values():
        counts = dict.fromkeys(HALVES, 0)
        for place in random.permutation(len(families)):
            # Where counts are equal, the half with fewer matrices in all gets the family.
            half = min(HALVES, key=lambda each: (counts[each], len(chosen[each])))
            counts[half] += len(families[place])
            chosen[half] += families[place]
    return {half: sorted(names, key=str.lower) for half, names in chosen.items()}


def evaluated() -> list[str]:
    """Give the graphs that judge learned cost models, sorted."""
    random = np.random.default_rng(SEED)
    tuning, judging = (set(halves()[half]) for half in HALVES)
    real = [families for name, families in GRAPHS.items() if name != SEEDED]
    chosen = [name for families in real for family in families for name in family if name in judging]
    drawn = [
        [random.choice(families[place]) for place in random.permutation(len(families)) if tuning >= {*families[place]}]
        for families in real
    ]
    more = [str(name) for turn in zip_longest(*drawn) for name in turn if name]
    return sorted([*chosen, *more[: EVALUATED - len(chosen)]], key=str.lower)


def layers() -> dict[str, list[str]]:
    """Give the names of each half's pruned layers, sorted; each layer is in one half."""
    names = [one.aliases[0].removeprefix("mirror/") for one in origins().values() if one.source == "dlmc"]
    chosen = {half: [n for n in names if any(fnmatchcase(n, each) for each in LAYERS[half])] for half in HALVES}
    if sorted(names) != sorted(chosen["tuning"] + chosen["judging"]):
        raise SystemExit("expected every pruned layer in one half: change LAYERS")
    return {half: sorted(names, key=str.lower) for half, names in chosen.items()}


def text(what: str, names: list[str]) -> str:
    """Write a list as a sweep includes it."""
    found = [find_origin("mirror", name) for name in names]
    return "\n".join(
        [f"# {what}, as scripts/studies/split_halves.py draws it.", *(f"- {one.id}" for one in found if one), ""]
    )


def main() -> None:
    """Write the lists."""
    for what, chosen in (("graphs", halves()), ("layers", layers())):
        for half, names in chosen.items():
            listed = text(f"The {half} half of the {what}", names)
            (FOLDER / f"{half}_{what}.yaml").write_text(listed, encoding="utf-8")
    listed = text("What judges learned cost models among real graphs", evaluated())
    (FOLDER / "dash_graphs.yaml").write_text(listed, encoding="utf-8")


if __name__ == "__main__":
    main()
