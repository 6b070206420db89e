"""Convolutions as SpMM without a copy of the input (implicit im2col): where a thread's elements lie in the activations.

Row k of B is one tap of one input channel, column n one output pixel of one image, row o of C one filter (LO-SpMM,
section 6.2). Channels are the second axis of both arrays (NCHW).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_TAPS = 32
"""Taps of a padded convolution: each has one bit of a mask."""
MOST_ELEMENTS = 1 << 29
"""Elements of the input and of the output: places are computed with 32 bits, and offsets are immediates of bytes."""


@dataclass(frozen=True)
class ConvShape:
    """Sizes of a two-dimensional convolution."""

    batch: int
    channels: int
    height: int
    width: int
    filters: int
    taps: tuple[int, int]
    """Height and width of a filter."""
    stride: int = 1
    padding: int = 0
    """Zeros around the input, on every side."""

    def __post_init__(self) -> None:
        sizes = (self.batch, self.channels, self.height, self.width, self.filters, *self.taps, self.stride)
        if min(sizes) < 1 or self.padding < 0:
            raise ValueError(f"expected sizes and a stride of at least 1 and no negative padding, found {self}")
        if min(self.out_size) < 1:
            raise ValueError(f"expected an input as large as a filter of {self.taps}, found {self}")
        if self.padding and self.taps[0] * self.taps[1] > MOST_TAPS:
            raise ValueError(f"expected at most {MOST_TAPS} taps of a padded convolution, found {self.taps}")
        most = max(self.image, self.filters * self.out_area)
        if self.batch * most >= MOST_ELEMENTS:
            raise ValueError(f"expected input and output below 2 GiB of float32, found {self.batch * most:,} elements")

    @property
    def out_size(self) -> tuple[int, int]:
        """Height and width of the output."""
        (down, right), padded = self.taps, 2 * self.padding
        return (self.height + padded - down) // self.stride + 1, (self.width + padded - right) // self.stride + 1

    @property
    def out_area(self) -> int:
        """Pixels of one filter's output of one image."""
        return self.out_size[0] * self.out_size[1]

    @property
    def columns(self) -> int:
        """J: output pixels of all images."""
        return self.batch * self.out_area

    @property
    def image(self) -> int:
        """Elements of one image's activations."""
        return self.channels * self.height * self.width

    def load_offsets(self, cols: NDArray[np.int32]) -> NDArray[np.int64]:
        """Give the elements from a pixel's first tap to rows k of B."""
        channel, down, right = np.unravel_index(cols, (self.channels, *self.taps))
        return np.asarray((channel * self.height + down) * self.width + right, np.int64)
