"""Train a layer of PyTorch whose weight is sparse and keeps its pattern.

    python examples/train_layer.py

A student with 10 % of the weights learns to give what a sparse teacher gives. Forward and backward products run on
spmark's kernels, on the GPU where there is one. The script prints the loss at every twentieth step; the loss falls to a
small part of the first one. It needs PyTorch (`pip install -e '.[torch]'` in a checkout).
"""

from __future__ import annotations

import torch

from spmark.torch import SparseLinear

STEPS, ROWS = 100, 64


def main() -> None:
    """Fit the values of one layer to those of another one of the same pattern."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pattern = torch.rand(96, 128) < 0.1
    teacher = (torch.randn(96, 128) * pattern).to(device)
    start = (torch.randn(96, 128) * pattern).to_sparse()
    student = SparseLinear(start, width=ROWS, device=device, budget_s=10).to(device)
    optimizer = torch.optim.Adam(student.parameters(), lr=0.1)

    for step in range(STEPS):
        x = torch.randn(ROWS, 128, device=device)
        loss = torch.nn.functional.mse_loss(student(x), x @ teacher.T)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 or step == STEPS - 1:
            print(f"step {step:3d}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
