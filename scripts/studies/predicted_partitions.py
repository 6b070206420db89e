"""How many column partitions LiteForm's forests predict for the listed real matrices: a table, one row a model.

``SPMARK_MIRROR=FOLDER python scripts/studies/predicted_partitions.py [MODEL...]`` needs no GPU. A model is the name of
one that ships, or the path of a file; by default all that ship.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.origins import origins
from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls.liteform.features import Features
from spmark.impls.liteform.predictor import find, shipped

WIDTHS = (32, 64, 128, 256, 512)


def main(models: Sequence[str]) -> None:
    """Write how often each number of partitions is predicted, over matrices times widths, and where CELL is chosen."""
    cache = Cache.default()
    specs = [MatrixSpec(source=one.source, name=one.name) for one in origins().values() if one.aliases]
    features = [Features.of(load_matrix(spec, cache, seed=0).csr) for spec in specs]
    lines = [f"{len(features)} matrices, J of {', '.join(map(str, WIDTHS))}"]
    lines += ["| model | partitions: cases | the same where CELL is chosen |", "|---|---|---|"]
    for name in models:
        forests = find(name)
        every: Counter[int] = Counter()
        chosen: Counter[int] = Counter()
        for one in features:
            for width in WIDTHS:
                partitions = int(forests.partitions.predict(one.partitions(width)))
                every[partitions] += 1
                chosen[partitions] += forests.pays(one, width)
        lines.append(f"| `{name}` | {_told(every)} | {_told(+chosen)} |")
    sys.stdout.write("\n".join([*lines, ""]))


def _told(counts: Counter[int]) -> str:
    return ", ".join(f"{partitions}: {count}" for partitions, count in sorted(counts.items())) or "none"


if __name__ == "__main__":
    main(sys.argv[1:] or shipped())
