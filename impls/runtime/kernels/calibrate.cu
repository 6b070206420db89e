// Kernels with a known number of bytes or operations: their rates are the ceilings of all other kernels.

#include <spmark/mma.cuh>
#include <spmark/vec.cuh>

using namespace spmark;

// Read `count` vectors of 16 bytes and keep a sum that no caller looks at; grid-stride, `unroll` loads in flight a
// thread. Lines that are read take the places of lines of the L2 that were written, which go to memory: `--flush read`.
//   source   4 * count floats, none negative
//   sink     one float, written only where the sum is a value that does not occur
template <int unroll, int threads>
__global__ void __launch_bounds__(threads)
    read_all(int64_t count, const float* __restrict__ source, float* __restrict__ sink) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * threads;
  float sum = 0.0f;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x; i < count; i += unroll * stride) {
    Vec<float, 4> part[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const int64_t at = i + u * stride < count ? i + u * stride : i;
      part[u] = load_streaming<4>(source + 4 * at);
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum += part[u][e];
  }
  if (sum == -1.0f) *sink = sum;  // sources are positive: this only keeps the loads alive
}

// Copy `count` vectors of 16 bytes, grid-stride.
//   source   4 * count floats
//   target   likewise
template <int unroll, int threads>
__global__ void __launch_bounds__(threads)
    copy_all(int64_t count, const float* __restrict__ source, float* __restrict__ target) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * threads;
  int64_t i = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
  for (; i + (unroll - 1) * stride < count; i += unroll * stride) {
    Vec<float, 4> part[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) part[u] = load_streaming<4>(source + 4 * (i + u * stride));
#pragma unroll
    for (int u = 0; u < unroll; ++u) store_streaming(target + 4 * (i + u * stride), part[u]);
  }
  for (; i < count; i += stride) store_streaming(target + 4 * i, load_streaming<4>(source + 4 * i));
}

// rounds * 16 multiply-adds a thread on 16 independent sums, enough to hide their latency.
//   rounds   multiply-adds of each sum
//   factor   multiplied by and added
//   sink     one float a thread of the grid
template <int threads>
__global__ void __launch_bounds__(threads) multiply_add(int rounds, float factor, float* __restrict__ sink) {
  constexpr int kSums = 16;
  float sum[kSums];
#pragma unroll
  for (int s = 0; s < kSums; ++s) sum[s] = threadIdx.x + s;
  for (int r = 0; r < rounds; ++r)
#pragma unroll
    for (int s = 0; s < kSums; ++s) sum[s] = fmaf(sum[s], factor, factor);
  float total = 0.0f;
#pragma unroll
  for (int s = 0; s < kSums; ++s) total += sum[s];
  sink[static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x] = total;
}

// rounds * 8 products of 16 x 8 x 16 halves a warp, on 8 independent sums.
//   rounds   products of each sum
//   sink     one float a thread of the grid
template <int threads>
__global__ void __launch_bounds__(threads) matrix_multiply(int rounds, float* __restrict__ sink) {
  constexpr int kSums = 8;
  constexpr unsigned kOne = 0x3c003c00u;  // 1 twice
  float sum[kSums][4] = {};
  unsigned a[4], b[2];
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = kOne + (threadIdx.x << 13);
#pragma unroll
  for (int i = 0; i < 2; ++i) b[i] = kOne;
  for (int r = 0; r < rounds; ++r)
#pragma unroll
    for (int s = 0; s < kSums; ++s) mma_m16n8k16<half>(sum[s], a, b);
  float total = 0.0f;
#pragma unroll
  for (int s = 0; s < kSums; ++s) total += sum[s][0] + sum[s][1] + sum[s][2] + sum[s][3];
  sink[static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x] = total;
}

// Follow `links` loads in one thread; each load gives the place of the next one, so that their latencies add up.
//   links   loads
//   next    at each place of the chain the next place, from place 0 on
//   sink    one int, the last place
template <int threads>
__global__ void __launch_bounds__(threads)
    follow_chain(int links, const int* __restrict__ next, int* __restrict__ sink) {
  if (threadIdx.x != 0) return;
  int place = 0;
  for (int link = 0; link < links; ++link) place = next[place];
  *sink = place;
}

// Read random rows of a table and keep a sum that no caller looks at; sparse products read rows of B in this way.
// A row of `row_vectors` vectors of 16 bytes is read by as many lanes, 32 at most. Each group of lanes has `rows` rows
// in flight and reads rounds * rows of them, drawn by a linear congruential generator: no index is read.
//   rounds     loads of `rows` rows a group
//   num_rows   rows of the table
//   table      num_rows * row_vectors * 4 floats, none negative
//   sink       one float a thread of the grid, written only where the sum is a value that does not occur
template <int row_vectors, int rows, int threads>
__global__ void __launch_bounds__(threads)
    gather_rows(int rounds, unsigned num_rows, const float* __restrict__ table, float* __restrict__ sink) {
  constexpr int kLanes = row_vectors < 32 ? row_vectors : 32;
  constexpr int kParts = row_vectors / kLanes;
  static_assert(kLanes * kParts == row_vectors && threads % kLanes == 0, "lanes must divide the row and the block");
  const unsigned thread = blockIdx.x * threads + threadIdx.x;
  const int lane = threadIdx.x % kLanes;
  unsigned state = (thread / kLanes + 1) * 2654435761u;
  float sum = 0.0f;
  for (int round = 0; round < rounds; ++round) {
    Vec<float, 4> part[rows][kParts];
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      state = state * 1664525u + 1013904223u;
      const int64_t row = static_cast<int64_t>(static_cast<unsigned long long>(state) * num_rows >> 32);
#pragma unroll
      for (int p = 0; p < kParts; ++p)
        part[r][p] = load_read_only<4>(table + 4 * (row * row_vectors + p * kLanes + lane));
    }
#pragma unroll
    for (int r = 0; r < rows; ++r)
#pragma unroll
      for (int p = 0; p < kParts; ++p)
#pragma unroll
        for (int e = 0; e < 4; ++e) sum += part[r][p][e];
  }
  if (sum == -1.0f) sink[thread] = sum;  // this only keeps the loads alive
}

// An empty kernel: its time is the cost of a launch.
template <int threads>
__global__ void __launch_bounds__(threads) nothing() {}
