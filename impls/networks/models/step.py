"""A step of a network: run again and again, eagerly, compiled, or as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from numpy.typing import NDArray
from torch import Tensor, nn  # pyright: ignore[reportMissingImports]

Part = Callable[[], Any]
"""One of a step's sparse layers alone, forward and backward as the step has it."""
_WARMUPS = 3


class Step:
    """A forward pass, or a step of training by Adam (Kingma and Ba, ICLR 2015).

    Parameters
    ----------
    forward : callable
        Gives the results, a tensor or several, or, where there is a ``module`` to train, the loss.
    mode : str
        ``eager``; ``compile``, `torch.compile` of ``forward``; ``graph``, where all but ``draw`` is one CUDA graph; or
        ``compile_graph``.
    module : nn.Module, optional
        Whose parameters are trained.
    rate : float
        Of Adam.
    draw : callable
        Draws what is random in a step, from a generator that is given.
    parts : dict
        The step's sparse layers by name.
    """

    def __init__(
        self,
        forward: Callable[[], Any],
        mode: str,
        *,
        module: nn.Module | None = None,
        rate: float = 0.0,
        draw: Callable[[torch.Generator], None] | None = None,
        place: str,
        parts: dict[str, Part],
    ) -> None:
        if "compile" in mode:
            torch.compiler.reset()  # where it gave up on a function for the library before, it would not try again
            forward = torch.compile(forward)
        self._forward = forward
        self._draw, self._generator, self.parts = draw, torch.Generator(place), parts
        self._start = {} if module is None else {key: one.clone() for key, one in module.state_dict().items()}
        self._module, self._mode = module, mode
        self._graph: Any = None
        on_gpu = self._generator.device.type == "cuda"
        if module is not None:
            self._optimizer = torch.optim.Adam(module.parameters(), lr=rate, fused=True, capturable=on_gpu)

    def prepare(self) -> None:
        """Compile or capture the step, and begin anew."""
        if "graph" in self._mode:
            self._capture()
        self.run()
        self.restart()

    def run(self) -> None:
        """Enqueue one step."""
        if self._draw is not None:
            self._draw(self._generator)
        if self._graph is None:
            self._body()
        else:
            self._graph.replay()

    def restart(self) -> None:
        """Give parameters, the optimiser and the generator the state in which they began."""
        self._generator.manual_seed(0)
        if self._module is None:
            return
        with torch.no_grad():
            for key, one in self._module.state_dict().items():
                one.copy_(self._start[key])
            for state in self._optimizer.state.values():
                for one in state.values():
                    one.zero_()

    def found(self) -> NDArray[np.float64]:
        """Give the results of the last step, flat; of training its loss."""
        found = [self._found] if isinstance(self._found, Tensor) else self._found
        return np.concatenate([one.detach().double().cpu().numpy().ravel() for one in found])

    def gradients(self) -> NDArray[np.float64]:
        """Give the norm of each parameter's gradient in the last step of training."""
        assert self._module is not None
        return np.array([float(one.grad.double().norm()) for one in self._module.parameters()])

    def _body(self) -> None:
        self._found = self._forward()
        if self._module is not None:
            self._optimizer.zero_grad()
            self._found.backward()
            self._optimizer.step()
            self._found = self._found.detach()  # else the next step keeps the graph of gradients alive

    def _capture(self) -> None:
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(_WARMUPS):
                self._body()
        torch.cuda.current_stream().wait_stream(beside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._body()


def product_part(product: Callable[[Tensor], Tensor], x: Tensor, backward: bool) -> Part:
    """Give a sparse layer on its own, with its gradients where the step takes them."""
    if not backward:
        return cast(Part, torch.no_grad()(lambda: product(x)))
    x = x.detach().requires_grad_()
    along = torch.ones_like(product(x))

    def both() -> Any:
        return product(x).backward(along)

    return both
