"""All configs of a training on its device: steps on some configs of one matrix, and looks at all of them.

A step computes so little that a GPU would wait for the host to launch its kernels. What is done again and again is
therefore recorded there as a CUDA graph, which is one launch. A graph has fixed sizes: a batch that is too short is
filled up with a config without a time, which is in no pair.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.dash.encoders import Encoder
from spmark.impls.dash.featuriser import EMBEDDING, Pattern
from spmark.impls.dash.network import Network
from spmark.impls.dash.withtorch import Tensor, load_torch, to_numpy
from spmark.studies.dash.samples import MatrixSamples

_AT_ONCE = 64
"""Matrices whose pairs are compared at a time."""
_RECORDING = Lock()
"""Threads of a process record in turn."""


class Replayed:
    """Work on fixed tensors that a GPU does again and again: from the second time on, its kernels are one launch.

    Parameters
    ----------
    device : str
        PyTorch's name of the device; a processor does all work as it is.
    """

    def __init__(self, device: str) -> None:
        self._graphs: dict[Hashable, Any] = {}
        self._torch, self._is_gpu = load_torch(), device != "cpu"
        if self._is_gpu:
            # Nothing that a graph allocates is read behind it: all graphs may share one memory.
            self._stream, self._pool = self._torch.cuda.Stream(), self._torch.cuda.graph_pool_handle()

    def __call__(self, name: Hashable, work: Callable[[], None]) -> None:
        """Do the work of a name, which has to be the same each time.

        The first time it is done as it is, which also makes what later times find: tables of neighbours, the state of
        an optimizer.
        """
        if graph := self._graphs.get(name):
            graph.replay()
            return
        with _RECORDING:
            work()
            if self._is_gpu:
                self._graphs[name] = self._recorded(work)

    def _recorded(self, work: Callable[[], None]) -> Any:
        # torch.cuda.graph() would also collect garbage, which takes longer than all else.
        graph = self._torch.cuda.CUDAGraph()
        self._torch.cuda.synchronize()
        with self._torch.cuda.stream(self._stream):
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            work()
            graph.capture_end()
        return graph


def ranking_loss(scores: Tensor, seconds: Tensor, noise: float, margin: float) -> Tensor:
    """Give the mean over pairs of ``max(0, margin - (score of the slower - score of the faster))``; 0 without pairs.

    A pair's times differ by more than noise. DASH (COGNATE), appendix A.4, sums over pairs; by the mean, matrices with
    other numbers of pairs weigh the same. O(n^2).

    Parameters
    ----------
    scores : (..., n) tensor
    seconds : (..., n) float64 tensor
        NaN for a config that is in no pair.
    noise, margin : float
    """
    slower = _slower(seconds, noise)
    short = (margin - _gaps(scores)).relu() * slower
    return short.sum((-2, -1)) / slower.sum((-2, -1)).clamp(min=1)


def _slower(seconds: Tensor, noise: float) -> Tensor:
    """Mark the pairs, (..., n, n): the first config is slower than the second one by more than noise."""
    return seconds.unsqueeze(-1) > (1 + noise) * seconds.unsqueeze(-2)


def _gaps(values: Tensor) -> Tensor:
    return values.unsqueeze(-1) - values.unsqueeze(-2)


class Configs:
    """The configs of all matrices on a device; every matrix has one without a time behind its own.

    Parameters
    ----------
    network : Network
    encoder : Encoder
    matrices : sequence of MatrixSamples
        At least one.
    embeddings : sequence of tensor, optional
        Of the matrices, by a featuriser that stays as it is; by default each look and each step embeds anew.
    noise, margin : float
        As `ranking_loss` has them.
    """

    def __init__(
        self,
        network: Network,
        encoder: Encoder,
        matrices: Sequence[MatrixSamples],
        embeddings: Sequence[Tensor] | None,
        *,
        noise: float,
        margin: float,
    ) -> None:
        torch, device = load_torch(), network.device
        self._network, self._noise, self._margin, self._run = network, noise, margin, Replayed(device)
        self.counts = [len(one.seconds) for one in matrices]
        """Configs of each matrix."""
        self._width = max(self.counts) + 1

        def rows(of: Sequence[NDArray[Any]], filler: float) -> NDArray[Any]:
            made = np.full((len(of), self._width, *of[0].shape[1:]), filler, of[0].dtype)
            for row, one in zip(made, of, strict=True):
                row[: len(one)] = one
            return made.reshape(-1, *of[0].shape[1:])

        self._host_seconds = rows([one.seconds for one in matrices], np.nan)
        self._seconds, self._common, self._latent = (
            torch.from_numpy(array).to(device)
            for array in (
                self._host_seconds,
                rows([one.common for one in matrices], 0),
                rows([encoder.encode(one.own) for one in matrices], 0),
            )
        )
        self._patterns = [] if embeddings else [Pattern.of(one.sites, one.sizes, device) for one in matrices]
        unknown = [torch.zeros(EMBEDDING, device=device)] * len(matrices)
        self._embeddings = torch.stack(list(embeddings or unknown))
        self._matrix = torch.arange(len(matrices), device=device).repeat_interleave(self._width)
        self.scores = torch.zeros(len(self._matrix), device=device)
        """Those of the last step that a config was in, (matrices * width,)."""
        self._chosen: Tensor = None

    def look(self) -> Tensor:
        """Give the scores of all configs, (matrices * width,)."""
        with load_torch().no_grad():
            for number in range(len(self._patterns)):
                self._run(("look", number), partial(self._embed, number))
            configs = self._network.embed_configs(self._common, self._latent)
            return self._network.rank(self._embeddings[self._matrix], configs)

    def _embed(self, number: int) -> None:
        self._embeddings[number].copy_(self._network.embed(self._patterns[number]))

    def steps(self, optimizer: Any, parts: Sequence[tuple[int, NDArray[np.int64]]], size: int) -> None:
        """Take a step for each part in turn; a part without pairs changes nothing.

        Parameters
        ----------
        optimizer : torch.optim.Optimizer
        parts : sequence of (int, (n,) int64)
            A matrix, and the numbers of some of its configs.
        size : int
            Configs of the largest part.
        """
        places = np.full((len(parts), size), self._width - 1)
        for row, (_, part) in zip(places, parts, strict=True):
            row[: len(part)] = part
        matrices = np.array([matrix for matrix, _ in parts])
        places += matrices[:, None] * self._width
        seconds = self._host_seconds[places]
        differ = np.nanmax(seconds, 1) > (1 + self._noise) * np.nanmin(seconds, 1)
        chosen = load_torch().from_numpy(places).to(self._network.device)
        if self._chosen is None:
            self._chosen = chosen[0].clone()
        for which in np.flatnonzero(differ).tolist():
            self._chosen.copy_(chosen[which])
            number = int(matrices[which]) if self._patterns else 0
            self._run(("step", number), partial(self._step, optimizer, number))

    def _step(self, optimizer: Any, number: int) -> None:
        chosen, network = self._chosen, self._network
        embedding = network.embed(self._patterns[number]) if self._patterns else self._embeddings[self._matrix[chosen]]
        scores = network.rank(embedding, network.embed_configs(self._common[chosen], self._latent[chosen]))
        self.scores[chosen] = scores.detach()
        optimizer.zero_grad()
        ranking_loss(scores, self._seconds[chosen], self._noise, self._margin).backward()
        optimizer.step()

    def measures(self, scores: Tensor) -> NDArray[np.float64]:
        """Give PRL, OPA and Kendall's tau-b by scores of all configs, (matrices, 3); NaN where a matrix has no pair."""
        shape, torch = (len(self.counts), self._width), load_torch()
        halves = zip(scores.view(shape).split(_AT_ONCE), self._seconds.view(shape).split(_AT_ONCE), strict=True)
        return to_numpy(torch.cat([self._measured(*of) for of in halves])).astype(np.float64)

    def _measured(self, scores: Tensor, seconds: Tensor) -> Tensor:
        slower, higher = _slower(seconds, self._noise), _gaps(scores) > 0
        longer = _slower(seconds, 0.0)
        timed = ~seconds.isnan()
        untied = higher & timed.unsqueeze(1) & timed.unsqueeze(2)
        # Kendall's tau-b: pairs in order less those out of order, over the geometric mean of pairs that are no ties.
        in_order = (higher & longer).sum((1, 2)) - (higher.mT & longer).sum((1, 2))
        tau = in_order / (longer.sum((1, 2)) * untied.sum((1, 2))).sqrt()
        share = (higher & slower).sum((1, 2)) / slower.sum((1, 2))
        loss = ranking_loss(scores, seconds, self._noise, self._margin)
        return load_torch().stack([loss, share, tau], 1).where(~share.isnan().unsqueeze(1), float("nan"))
