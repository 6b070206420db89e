"""Train the network of the cost model on measured tiles, with scikit-learn.

Fang, Shen, Wang and Chen, "STile", SIGMOD 2024, section 5.6; layers of 64 and 32 units as in the public code.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spmark.impls.stile.net import Net
from spmark.studies.rows import untrained

HIDDEN = (64, 32)
_DECAY = 1e-2
_ROUNDS = 2000


def train(features: NDArray[np.float64], milliseconds: NDArray[np.float64], seed: int = 0) -> Net:
    """Fit a network to measured tiles.

    Logarithms of the times are fitted, so that short tiles count as much as long ones. The method is L-BFGS, for few
    samples, with weight decay. Features and logarithms are standardised, and the first and the last layer absorb this.

    Parameters
    ----------
    features : (n, f) float64
        The answer of `spmark.impls.stile.prices.features`.
    milliseconds : (n,) float64
        Above zero.
    seed : int
        Seed of the weights that training begins with.

    Raises
    ------
    UnsupportedError
        scikit-learn is not installed.
    ValueError
        There are fewer than two tiles, more or fewer times than tiles, or a time of zero or less.
    """
    if features.shape[0] != milliseconds.size or milliseconds.size < 2 or not milliseconds.min() > 0:
        raise ValueError(
            f"expected times above zero of at least two tiles, found {milliseconds.size} of {features.shape[0]} tiles, "
            f"the least of {milliseconds.min(initial=np.inf)} ms"
        )
    try:
        from sklearn.neural_network import MLPRegressor
    except ImportError as error:
        raise untrained("scikit-learn", error) from error
    mean, scale = features.mean(0), _spread(features)
    times = np.log(milliseconds)
    middle, spread = times.mean(), _spread(times)
    model = MLPRegressor(
        hidden_layer_sizes=HIDDEN,
        solver="lbfgs",
        alpha=_DECAY,
        max_iter=_ROUNDS,
        max_fun=10 * _ROUNDS,
        random_state=seed,
    )
    model.fit((features - mean) / scale, (times - middle) / spread)
    first, *between, last = model.coefs_
    begins, *offsets, ends = model.intercepts_
    first = first / scale[:, None]
    return Net.of([first, *between, last * spread], [begins - mean @ first, *offsets, ends * spread + middle])


def _spread(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give the standard deviation of each column; 1 where the column is constant."""
    deviation = np.asarray(values.std(0))
    return np.where(deviation > 1e-9, deviation, 1.0)
