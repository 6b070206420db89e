"""Deriving a large frame in shares, each by another process: what is derived of a row depends on its matrix alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from spmark.report.analysis.kept import Derivation, digest_of_texts

_ROWS = 800
"""Of a share, about: deriving them takes a second."""


def shares_of(frame: pd.DataFrame) -> list[pd.DataFrame]:
    """Split a frame into shares of about as many rows, with all rows of a matrix in one; in the order of the frame."""
    count = max(1, round(len(frame) / _ROWS))
    if count == 1:
        return [frame]
    codes, names = pd.factorize(frame["matrix"])
    ends = np.cumsum(np.bincount(codes, minlength=len(names)))
    # A matrix belongs to the share in which its last row falls where matrices stand one after another.
    share = ((ends - 1) * count // len(frame))[codes]
    return [frame[share == place] for place in range(count) if (share == place).any()]


def joined(shares: Sequence[Derivation], index: pd.Index) -> Derivation:
    """Put what was derived of the shares of a frame with this index together."""
    if len(shares) == 1:
        return shares[0]
    columns = {name: pd.concat([share.columns[name] for share in shares]).reindex(index) for name in shares[0].columns}
    return Derivation(digest_of_texts([share.digest for share in shares]), columns)
