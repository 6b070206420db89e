"""Colours: fixed by name, never shared in one figure, and apart for colour-blind readers."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from spmark.impls.table import IMPLEMENTATIONS
from spmark.report.analysis.methods import known_methods
from spmark.report.figures.style import DASHES, LEAST_CONTRAST, LOOKS, contrast, looks

GPU = (
    "cusparse_best", "cusparse", "cublas", "gespmm", "dgl", "sparsetir_paper", "stile_paper", "liteform_published",
    "lo_spmm_paper", "dash", "rowsplit", "nnzbalanced", "triton_blocksparse", "dgsparse", "torch_sparse", "cupyx",
    "pyg", "nvmath", "rode", "flashsparse",
)  # fmt: skip
CPU = ("scipy_cpu", "numba_cpu", "blas_cpu", "taco_cpu", "dgl", "torch_sparse", "pyg")
# Machado, Oliveira and Fernandes, IEEE TVCG 2009, severity 1.0, on linear RGB.
VISION = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}


def lab(colour, vision):
    srgb = np.array(to_rgb(colour))
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(VISION[vision]) @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ seen
    x, y, z = np.cbrt(np.maximum(xyz / [0.9505, 1, 1.089], 1e-6))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("names", [GPU, CPU], ids=["gpu", "cpu"])
def test_colours_drawn_together_can_be_told_apart(names, vision):
    distances = {
        (a, b): float(np.linalg.norm(lab(LOOKS[a].colour, vision) - lab(LOOKS[b].colour, vision)))
        for a, b in combinations(names, 2)
    }
    closest = min(distances, key=distances.get)
    assert distances[closest] > 12, (closest, distances[closest])


def test_every_implementation_has_a_look_of_its_own():
    assert set(IMPLEMENTATIONS) <= set(LOOKS)
    assert len({look.colour for look in LOOKS.values()}) == len(LOOKS)


def test_a_look_does_not_depend_on_who_else_is_drawn():
    alone = looks([("gespmm", "gespmm")])
    together = looks([("dgl", "dgl"), ("mine", "mine"), ("gespmm", "gespmm")])
    assert together["gespmm"] == alone["gespmm"] == LOOKS["gespmm"]
    assert list(together) == ["gespmm", "dgl", "mine"]
    assert together["mine"] == looks([("mine", "mine")])["mine"]


def test_a_system_s_published_label_comes_first():
    told = [("liteform_cell", "liteform"), ("liteform_extended", "liteform"), ("liteform", "liteform")]
    shown = looks([*told, ("liteform_published", "liteform"), ("gespmm", "gespmm")])
    assert list(shown) == ["gespmm", "liteform_published", "liteform_extended", "liteform", "liteform_cell"]
    assert len({look.colour for look in shown.values()}) == 5


def test_unknown_implementations_and_further_configs_differ():
    shown = looks([(f"new{i}", f"new{i}") for i in range(6)])
    assert len({look.colour for look in shown.values()}) == 6
    configs = looks([("gespmm", "gespmm"), ("wide", "gespmm"), ("narrow", "gespmm")])
    assert list(configs) == ["gespmm", "narrow", "wide"]
    assert len({(look.colour, look.hatch) for look in configs.values()}) == 3
    assert all(len({look.colour for look in looks([(f"{n}{i}", n) for i in range(3)]).values()}) > 1 for n in LOOKS)
    assert len({look.marker for look in configs.values()}) == 3
    assert len({str(DASHES[look.hatch]) for look in configs.values()}) == 3
    assert len(looks([(f"n{i}", f"n{i}") for i in range(9)])) == 9


def test_many_configs_of_one_implementation_are_sorted_by_their_numbers_and_told_apart():
    widths = [f"width {1 << power}" for power in range(11)]
    shown = looks([(label, "liteform") for label in reversed(widths)])
    assert list(shown) == widths
    assert len({(look.marker, look.hatch) for look in shown.values()}) == len(widths)


def test_no_colour_fades_into_the_figure():
    many = [(f"{name}{i}", name) for name in [*LOOKS, *(f"new{j}" for j in range(6))] for i in range(9)]
    colours = {label: look.colour for label, look in looks(many).items()}
    colours |= {name: about.colour for name, about in known_methods().methods.items()}
    assert {label: colour for label, colour in colours.items() if contrast(colour) < LEAST_CONTRAST} == {}
