"""The rank model of LO-SpMM's section 3.5: regression trees boosted by LambdaMART, as plain lists in a JSON file.

LightGBM trains (`spmark.studies.lo_spmm.training`). A search reads these lists alone, so that it needs no LightGBM
and a file has nothing but numbers. Files that ship stand under ``models``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from spmark.impls.core.errors import BuildError
from spmark.impls.core.files import model_file, written
from spmark.impls.core.trees import FlatTrees
from spmark.impls.core.untrusted import Frozen, parse_model, reading
from spmark.impls.lo_spmm.search import TileSpace
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.runtime.target import ceil_div

SHIPPED: Final = "h200"
"""The file that is taken by default."""
_FOLDER = Path(__file__).parent / "models"
FEATURES: Final = (
    *("row_tiles", "col_tiles", "blocks", "sparsity", "nnc_sum", "nnz_max", "tile_rows", "tile_width", "K"),
    *("cpt", "tiles_per_block"),
)
"""Names of the features, in the order of `features_of`: the nine of LO-SpMM's table 1, and two of sizes that the
paper fixes."""


def features_of(space: TileSpace, sizes: Sequence[TileSize]) -> NDArray[np.float64]:
    """Give the features of candidates, (n, 11) float64 in the order of `FEATURES`."""
    matrix, rows = space.problem.matrix, []
    sparsity = 1 - matrix.nnz / (matrix.num_rows * matrix.num_cols)
    for size in sizes:
        _, nnz, nnc = space.dealt(size.tile_rows, size.split)
        columns = ceil_div(space.problem.width, size.tile_width)
        tile = (size.tile_rows, size.tile_width, matrix.num_cols, size.cpt, size.tiles_per_block)
        rows.append((nnz.size, columns, nnz.size * columns, sparsity, nnc.sum(), nnz.max(initial=0), *tile))
    return np.array(rows, np.float64)


class RankCard(Frozen):
    """Facts about the model of a file."""

    name: str = ""
    gpu: str
    """GPU that the kernels were measured on."""
    labels_sha256: str
    """Digest of the labels' files."""
    groups: int
    """Problems that the model was trained on."""
    candidates: int
    """Measured kernels of these problems."""
    ranges: dict[str, tuple[float, float]]
    """Least and greatest value of each feature in training."""
    held_out: dict[str, float] = {}
    """Scores of models on the fifth of the problems that each did not see, and what the estimate's choice costs."""
    made_with: dict[str, str] = {}
    """Versions, the command, and factors of the estimate's rates that the same labels would give."""


class Trees(Frozen):
    """Binary trees one after the other; a sample's score is the sum of the leaves that it reaches."""

    roots: tuple[int, ...]
    """First node of each tree."""
    feature: tuple[int, ...]
    """Feature that a node looks at, -1 in a leaf."""
    threshold: tuple[float, ...]
    """Samples up to this value go left; of a leaf, the leaf's value."""
    left: tuple[int, ...]
    right: tuple[int, ...]
    """Children, after their parents; 0 in a leaf."""

    @model_validator(mode="after")
    def _closed(self) -> Self:
        if wrong := self.flat.fault(len(FEATURES)):
            raise ValueError(f"expected {wrong} of trees, found other sizes or values")
        return self

    @cached_property
    def flat(self) -> FlatTrees:
        """The lists as arrays."""
        return FlatTrees(*(np.array(values) for _, values in self))

    def score(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Score candidates of one problem; only the order means something, and less is better.

        Parameters
        ----------
        features : (n, 11) float64
            In the order of `FEATURES`.

        Returns
        -------
        (n,) float64. O(n trees depth).
        """
        return -np.asarray(self.flat.threshold[self.flat.reached(features)].sum(1), np.float64)


class RankModel(Frozen):
    """Trees that order the candidates of one problem."""

    schema_version: Literal[1] = 1
    card: RankCard
    features: tuple[str, ...] = FEATURES
    """Names of the features, in order."""
    trees: Trees
    digest: str = ""
    """SHA-256 over the rest."""

    def save(self, path: Path) -> RankModel:
        """Write the file with its digest; gives the model with the digest.

        Raises
        ------
        BuildError
            The file cannot be written.
        """
        kept = self.model_copy(update={"digest": self._fingerprint()})
        with written(path, BuildError) as part:
            part.write_text(kept.model_dump_json() + "\n", encoding="utf-8")
        return kept

    def _fingerprint(self) -> str:
        return hashlib.sha256(self.model_copy(update={"digest": ""}).model_dump_json().encode()).hexdigest()

    @classmethod
    def load(cls, path: Path) -> RankModel:
        """Read a file and check all of it.

        Raises
        ------
        BuildError
            The file is missing, damaged, of another schema or of another order of features.
        """
        with reading(path, "a rank model that can be read", BuildError):
            model = parse_model(cls, path.read_bytes())
        if model.features != FEATURES:
            raise BuildError(
                f"{path}: expected features in the order {', '.join(FEATURES)}, found {', '.join(model.features)}; "
                "train the model again: spmark study train lo_spmm"
            )
        if model.digest != model._fingerprint():
            raise BuildError(f"{path}: expected content with the digest {model.digest}, found other: it is damaged")
        return model


@cache
def find(name: str) -> RankModel:
    """Give a model that ships, or a model by the path of its file; a process reads it once.

    Raises
    ------
    BuildError
        The model is missing, or its file cannot be used.
    """
    return RankModel.load(model_file(_FOLDER, name, ".json"))
