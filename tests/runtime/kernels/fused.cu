// Two bodies of different appetites in one grid: each marks the blocks that it ran as.
#include <spmark/fusion.cuh>

using namespace spmark;

struct Many {
  double values[64];
};

struct Few {
  int values[32];
};

template <int threads>
__global__ void __launch_bounds__(threads)
    mark(int stamp, int first_items, int first_tiles, int* first_marks, int second_items, int second_tiles,
         int* second_marks, int third_items, int third_tiles, float* third_marks, int* last) {
  __shared__ LargestOf<Many, Few> shared;
  run_fused(blockIdx.x,
            body(first_items, first_tiles,
                 [&](Place at) {
                   auto& mine = shared.template as<Few>();
                   mine.values[threadIdx.x] = threadIdx.x;
                   __syncthreads();  // thread 0 reads what another wrote
                   if (threadIdx.x == 0)
                     first_marks[at.tile * first_items + at.item] += stamp + mine.values[threads - 1];
                 }),
            body(second_items, second_tiles,
                 [&](Place at) {
                   auto& mine = shared.template as<Many>();
                   mine.values[threadIdx.x + threads] = 2.0 * threadIdx.x;
                   __syncthreads();  // as above
                   if (threadIdx.x == 0)
                     second_marks[at.tile * second_items + at.item] += static_cast<int>(mine.values[2 * threads - 1]);
                 }),
            body(third_items, third_tiles, [&](Place at) {
              if (threadIdx.x == 0) atomicAdd(third_marks + at.item, 0.5f + at.tile);  // blocks of several tiles do
              if (threadIdx.x == 0 && blockIdx.x == gridDim.x - 1) last[0] = blockIdx.x;
            }));
}
