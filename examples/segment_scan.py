"""Give every voxel of a scan scores by MinkUNet (CVPR 2019; widths of SPVNAS, ECCV 2020), with random weights.

    python examples/segment_scan.py

Batch norms are folded into the weights. It needs PyTorch, and uses a GPU where there is one.
"""

from time import perf_counter

import torch
from torch.nn import Identity, Linear, Module, ModuleList

from spmark.torch import KernelMap, SparseConv3d, voxelize


class Block(Module):
    """Two convolutions within a level, and a way around them."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.first, self.second = SparseConv3d(before, after), SparseConv3d(after, after)
        self.around = Identity() if before == after else Linear(before, after, bias=False)

    def forward(self, x: torch.Tensor, level: KernelMap) -> torch.Tensor:
        """Give the features of the level's voxels after the block."""
        return (self.second(self.first(x, level).relu(), level) + self.around(x)).relu()


def stage(before: int, between: int, beside: int, after: int) -> ModuleList:
    """Make a convolution onto another level and two blocks there; features of the way down may join beside."""
    return ModuleList([SparseConv3d(before, between, 2), Block(between + beside, after), Block(after, after)])


torch.manual_seed(0)
device, count, dtype = ("cuda", 200_000, torch.half) if torch.cuda.is_available() else ("cpu", 2_000, torch.float)
points = torch.rand(count, 3, device=device) * torch.tensor([count**0.5 / 12, count**0.5 / 12, 0.1], device=device)
voxels, _ = voxelize(points, 0.05)  # metres
x = torch.nn.functional.pad(voxels * 0.05, (0, 1), value=1.0).to(dtype)
levels, steps = [KernelMap.submanifold(voxels)], []
for _ in range(4):
    voxels, step = KernelMap.strided(voxels)
    levels, steps = [*levels, KernelMap.submanifold(voxels)], [*steps, step]
down = [stage(32, 32, 0, 32), stage(32, 32, 0, 64), stage(64, 64, 0, 128), stage(128, 128, 0, 256)]
up = [stage(256, 256, 128, 256), stage(256, 128, 64, 128), stage(128, 96, 32, 96), stage(96, 96, 32, 96)]
network = ModuleList([Block(4, 32), *down, *up, Linear(96, 19)]).to(device, dtype)
for _ in range(2):  # the first pass plans all layers
    start = perf_counter()
    with torch.inference_mode():
        kept = [network[0](x, levels[0])]
        for (move, one, two), step, level in zip(down, steps, levels[1:], strict=True):
            kept.append(two(one(move(kept[-1], step), level), level))
        y = kept.pop()
        for (move, one, two), step, level in zip(up, steps[::-1], levels[-2::-1], strict=True):
            y = two(one(torch.cat([move(y, step.T), kept.pop()], dim=1), level), level)
        print(f"{len(x)} voxels: spread {network[-1](y).float().std():.3f}, {(perf_counter() - start) * 1e3:.1f} ms")
