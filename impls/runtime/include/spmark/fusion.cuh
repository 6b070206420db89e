// Horizontal fusion: several kernels' bodies in one grid, each with a range of its thread blocks. Bodies have the same
// block size. Blocks run in any order: where one body needs the results of another, that one belongs into a launch
// before.
//
// After Li et al., "Automatic Horizontal Fusion for GPU Kernels", CGO 2022, as Ye et al., "SparseTIR", ASPLOS 2023, use
// it for composable formats. `spmark.impls.runtime.fusion` holds the host's half.
#pragma once

namespace spmark {

// Where a thread block stands in its body's share of the grid.
struct Place {
  int item;
  int tile;
};

// A body of a fused grid: `run(Place)` does the work of one of its thread blocks. It has a block for each of its
// `items` (ranges, rows of blocks) and each of `tiles` tiles of columns; its blocks walk the items of one tile before
// they turn to the next.
template <typename Do>
struct Body {
  int items;
  int tiles;
  Do run;
};

template <typename Do>
__device__ __forceinline__ Body<Do> body(int items, int tiles, Do run) {
  return {items, tiles, run};
}

// Run the one body whose range `block` lies in: all threads of a block take the same branch, so bodies may have
// barriers.
template <typename First, typename... Rest>
__device__ __forceinline__ void run_fused(int block, const Body<First>& first, const Body<Rest>&... rest) {
  const int blocks = first.items * first.tiles;
  if (block < blocks) {
    first.run(Place{block % first.items, block / first.items});
  } else if constexpr (sizeof...(Rest) > 0) {
    run_fused(block - blocks, rest...);
  }
}

template <typename... Bodies>
__device__ constexpr size_t largest_size() {
  size_t bytes = 0;
  ((bytes = bytes < sizeof(Bodies) ? sizeof(Bodies) : bytes), ...);
  return bytes;
}

// Shared memory for one of several bodies: as many bytes as the largest needs.
template <typename... Bodies>
struct LargestOf {
  alignas(Bodies...) char bytes[largest_size<Bodies...>()];

  template <typename Wanted>
  __device__ __forceinline__ Wanted& as() {
    return *reinterpret_cast<Wanted*>(bytes);
  }
};

}  // namespace spmark
