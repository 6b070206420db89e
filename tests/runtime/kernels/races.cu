// Kernels whose threads, blocks or grids need an order: with it, and with one part of it left out on purpose.

#include <spmark/async.cuh>
#include <spmark/overlap.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

using namespace spmark;

// step > 0: threads read what higher ones write; step < 0: what lower ones write.
__global__ void missing_barrier(float* out, int step) {
  __shared__ float staged[32];
  staged[threadIdx.x] = 1.0f;
  out[blockIdx.x * 32 + threadIdx.x] = staged[(threadIdx.x + 32 + step) % 32];
}

// A stage that is filled again while others still read what was there, two warps or more.
template <bool ordered>
__global__ void missing_second_barrier(const float* in, float* out, int trips) {
  __shared__ float staged[64];
  float sum = 0.0f;
  for (int trip = 0; trip < trips; ++trip) {
    staged[threadIdx.x] = in[trip * 64 + threadIdx.x];
    __syncthreads();
    sum += staged[63 - threadIdx.x];
    if (ordered) __syncthreads();
  }
  out[threadIdx.x] = sum;
}

// The same by groups of eight lanes. 0: ordered; 1: nothing between; 2: a shuffle between, which orders no memory.
template <int way>
__global__ void missing_syncwarp(const float* in, float* out, int trips) {
  __shared__ float staged[32];
  const unsigned members = group_mask<8>();
  float sum = 0.0f;
  for (int trip = 0; trip < trips; ++trip) {
    staged[threadIdx.x] = in[trip * 32 + threadIdx.x];
    __syncwarp(members);
    sum += staged[threadIdx.x ^ 7];
    if (way == 0) __syncwarp(members);
    if (way == 2) sum = __shfl_sync(members, sum, lane_id());
  }
  out[threadIdx.x] = sum;
}

// A tree that adds in place: each step loads and stores the same element.
template <bool ordered>
__global__ void changes_in_place(float* out) {
  __shared__ float sums[64];
  sums[threadIdx.x] = 1.0f;
  __syncthreads();
  for (int step = 32; step > 0; step /= 2) {
    if (threadIdx.x < static_cast<unsigned>(step)) sums[threadIdx.x] += sums[threadIdx.x + step];
    if (ordered) __syncthreads();
  }
  if (threadIdx.x == 0) out[0] = sums[0];
}

template <bool ordered>
__global__ void copies_over_what_is_read(const float* in, float* out) {
  __shared__ alignas(16) float staged[128];
  for (int trip = 0; trip < 2; ++trip) {
    copy_async<16>(staged + 4 * threadIdx.x, in + 128 * trip + 4 * threadIdx.x);
    commit_async();
    wait_async<0>();
    __syncwarp();
    out[threadIdx.x] = staged[127 - 4 * threadIdx.x];
    if (ordered) __syncwarp();
  }
}

__global__ void blocks_write_the_same(float* out) { out[threadIdx.x] = static_cast<float>(blockIdx.x); }

__global__ void atomic_and_plain(float* out) {
  if (threadIdx.x % 2 == 0)
    atomicAdd(out, 1.0f);
  else
    *out = 1.0f;
}

// The last thread block to arrive adds up what all have written. `left_out`: 0 nothing; 1 the fence before the arrival;
// 2 the barrier before it; 3 the fence after it; 4 the last but one adds up; 5 the arrival itself; 6 the fence is
// behind the atomic.
template <int left_out>
__global__ void last_adds_up(float* parts, int* counter, float* out) {
  constexpr int threads = 64;
  const int blocks = static_cast<int>(gridDim.x);
  __shared__ int count;
  parts[blockIdx.x * threads + threadIdx.x] = 1.0f;
  if (left_out != 1 && left_out != 6) __threadfence();
  if (left_out != 2) __syncthreads();
  if (threadIdx.x == 0) {
    count = left_out == 5 ? static_cast<int>(blockIdx.x) : atomicAdd(counter, 1);
    if (count == blocks - 1) *counter = 0;
    if (left_out == 6) __threadfence();
  }
  __syncthreads();
  if (count != blocks - 1 - (left_out == 4 ? 1 : 0)) return;
  if (left_out != 3) __threadfence();
  float sum = 0.0f;
  for (int b = 0; b < blocks; ++b) sum += parts[b * threads + threadIdx.x];
  out[threadIdx.x] = sum;
}

// The last warp to arrive adds up what all have written; a warp is a thread block, and its first lane counts it.
// `left_out`: 0 nothing; 1 the order of the lanes' writes before the arrival; 2 the fence before it; 3 the fence after
// it; 4 the order of the lanes' reads after it: a shuffle tells them that they are last, and orders no memory.
template <int left_out>
__global__ void last_warp_adds_up(float* parts, int* counter, float* out) {
  const int blocks = static_cast<int>(gridDim.x), lane = lane_id();
  parts[blockIdx.x * 32 + lane] = 1.0f;
  if (left_out != 1) __syncwarp();
  int last = 0;
  if (lane == 0) {
    if (left_out != 2) __threadfence();
    last = atomicAdd(counter, 1) == blocks - 1;
    if (last) *counter = 0;
    if (left_out != 3) __threadfence();
  }
  last = __shfl_sync(kFullMask, last, 0);
  if (left_out != 4) __syncwarp();
  if (last == 0) return;
  float sum = 0.0f;
  for (int b = 0; b < blocks; ++b) sum += parts[b * 32 + lane];
  out[lane] = sum;
}

__global__ void clear_rows(int width, const int* rows, float* out) {
  let_next_grid_begin();
  out[rows[blockIdx.x] * width + threadIdx.x] = 0.0f;
}

// 0: every thread waits; 1: none does; 2: it waits after the sum; 3: one thread does, and a barrier comes after; 4: one
// thread does, and no barrier comes after.
template <int way>
__global__ void add_to_rows(int width, float* out) {
  if (way == 0) wait_for_previous_grid();
  if ((way == 3 || way == 4) && threadIdx.x == 0) wait_for_previous_grid();
  if (way == 3) __syncthreads();
  atomicAdd(out + blockIdx.x * width + threadIdx.x, 1.0f);
  if (way == 2) wait_for_previous_grid();
}

// Who comes when: the place of every thread in the order in which all ran.
__global__ void order_of_arrival(int* counter, int* place) {
  place[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(counter, 1);
}
