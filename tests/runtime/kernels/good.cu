// Kernels that use what the host ring offers as it is meant to be used.

#include <spmark/async.cuh>
#include <spmark/atomic.cuh>
#include <spmark/ldmatrix.cuh>
#include <spmark/mma.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

using namespace spmark;

// out[b] = sum of block b's slice of `in`, as a tree in shared memory.
template <int threads>
__global__ void __launch_bounds__(threads) tree_sum(const float* __restrict__ in, float* out) {
  __shared__ float staged[threads];
  staged[threadIdx.x] = in[blockIdx.x * threads + threadIdx.x];
  __syncthreads();
  for (int half_way = threads / 2; half_way > 0; half_way /= 2) {
    if (static_cast<int>(threadIdx.x) < half_way) staged[threadIdx.x] += staged[threadIdx.x + half_way];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = staged[0];
}

template <int width>
__global__ void group_sum(const float* in, float* sums) {
  const int at = threadIdx.y * blockDim.x + threadIdx.x;
  // Groups take turns of unequal number: each is a collective of its own.
  for (int turn = 0; turn <= at / width % 3; ++turn) sums[at] = warp_sum<width>(in[at]);
}

template <typename T>
__global__ void shuffles(const T* in, T* out) {
  const int lane = lane_id();
  const T value = in[lane];
  out[lane] = __shfl_sync(kFullMask, value, (lane * 7) % 32);
  out[32 + lane] = __shfl_down_sync(kFullMask, value, 3);
  out[64 + lane] = __shfl_up_sync(kFullMask, value, 3);
  out[96 + lane] = __shfl_xor_sync(kFullMask, value, 5);
  out[128 + lane] = __shfl_sync(kFullMask, value, 2, 8);
  out[160 + lane] = __shfl_down_sync(kFullMask, value, 2, 8);
}

__global__ void votes(const int* in, unsigned* out) {
  const int lane = lane_id();
  const int value = in[lane];
  out[lane] = __ballot_sync(kFullMask, value > 4);
  out[32 + lane] = __any_sync(kFullMask, value == 9);
  out[64 + lane] = __all_sync(kFullMask, value < 10);
  out[96 + lane] = static_cast<unsigned>(__syncthreads_or(value == 9));
}

__global__ void atomics(const int* in, int count, int* bins, int* extremes, float* total, float* pairs) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    atomicAdd(&bins[in[i]], 1);
    atomicMin(&extremes[0], in[i]);
    atomicMax(&extremes[1], in[i]);
    atomicCAS(&extremes[2], -1, 5);
    atomicExch(&extremes[3], 8);
    atomic_add(total, static_cast<float>(in[i]));
    Vec<float, 4> both;
    for (int k = 0; k < 4; ++k) both[k] = static_cast<float>(in[i] * k);
    atomic_add(pairs, both);
  }
}

// Inclusive scan over the block: warp scans, then the sums of warps.
template <int threads>
__global__ void __launch_bounds__(threads) block_scan(const int* in, int* out) {
  __shared__ int sums[threads / 32];
  const int lane = lane_id();
  const int warp = threadIdx.x / 32;
  int value = in[threadIdx.x];
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(kFullMask, value, step);
    if (lane >= step) value += other;
  }
  if (lane == 31) sums[warp] = value;
  __syncthreads();
  for (int before = 0; before < warp; ++before) value += sums[before];
  out[threadIdx.x] = value;
}

// Copies through every kind of load and store; out holds 3 copies of in, scaled holds 2 * in in float32.
// What is loaded where it is not wanted adds nothing, and its address is not looked at.
template <typename T, int n>
__global__ void copies(const T* in, T* out, float* scaled, int count) {
  const int at = (blockIdx.x * blockDim.x + threadIdx.x) * n;
  if (at >= count) return;
  const Vec<T, n> value = load<n>(in + at);
  store(out + at, value);
  store(out + count + at, load_read_only<n>(in + at));
  store_streaming(out + 2 * count + at, load_streaming<n>(in + at));
  Vec<float, n> twice = {};
  axpy(twice, 0.5f, load_packed<n>(in + at));
  axpy(twice, 1.5f, load_packed_where<n>(true, in + at));
  axpy(twice, 1.0f, load_packed_where<n>(false, static_cast<const T*>(nullptr)));
  for (int i = 0; i < n; ++i) scaled[at + i] = twice[i];
}

// out = running sums of tiles of 4 * threads floats, staged in two buffers of which one is filled while one is read.
template <int threads>
__global__ void double_buffer(const float* in, float* out, int tiles, int valid) {
  __shared__ alignas(16) float staged[2][4 * threads];
  const int at = 4 * threadIdx.x;
  const auto fetch = [&](int tile) {
    const int from = tile * 4 * threads + at;
    copy_async<16>(&staged[tile % 2][at], in + from, tile < tiles && from < valid);
    commit_async();
  };
  Vec<float, 4> sum = {};
  fetch(0);
  for (int tile = 0; tile < tiles; ++tile) {
    fetch(tile + 1);
    wait_async<1>();
    __syncthreads();
    // A neighbour's part, so that the barrier is needed.
    axpy(sum, 1.0f, load<4>(&staged[tile % 2][(at + 4) % (4 * threads)]));
    __syncthreads();
  }
  store(out + at, sum);
}

// out[i] = in[n - 1 - i] + table[i % 8]: both kinds of shared memory, and a variable that two template instances own.
template <typename T, int threads>
__global__ void static_and_dynamic(const T* in, T* out) {
  extern __shared__ __align__(16) unsigned char bytes[];
  __shared__ T table[8];
  T* dynamic = reinterpret_cast<T*>(bytes);
  dynamic[threadIdx.x] = in[threadIdx.x];
  if (threadIdx.x < 8) table[threadIdx.x] = static_cast<T>(threadIdx.x);
  __syncthreads();
  out[threadIdx.x] = dynamic[threads - 1 - threadIdx.x] + table[threadIdx.x % 8];
}

// out (16 x 8) = in_a (16 x 16) in_b (16 x 8) + out; one warp.
template <typename T>
__global__ void mma_16_bits(const T* in_a, const T* in_b, float* out) {
  const int g = lane_id() / 4;
  const int t = lane_id() % 4;
  const auto pair = [](T low, T high) {
    const T both[2] = {low, high};
    unsigned bits;
    memcpy(&bits, both, sizeof(bits));
    return bits;
  };
  const auto a = [&](int row, int column) { return pair(in_a[row * 16 + column], in_a[row * 16 + column + 1]); };
  const auto b = [&](int row) { return pair(in_b[row * 8 + g], in_b[(row + 1) * 8 + g]); };
  const unsigned fa[4] = {a(g, 2 * t), a(g + 8, 2 * t), a(g, 2 * t + 8), a(g + 8, 2 * t + 8)};
  const unsigned fb[2] = {b(2 * t), b(2 * t + 8)};
  float d[4] = {out[g * 8 + 2 * t], out[g * 8 + 2 * t + 1], out[(g + 8) * 8 + 2 * t], out[(g + 8) * 8 + 2 * t + 1]};
  mma_m16n8k16<T>(d, fa, fb);
  out[g * 8 + 2 * t] = d[0];
  out[g * 8 + 2 * t + 1] = d[1];
  out[(g + 8) * 8 + 2 * t] = d[2];
  out[(g + 8) * 8 + 2 * t + 1] = d[3];
}

// out (16 x 8) = in_a (16 x 8) in_b (8 x 8) + out; one warp.
__global__ void mma_tf32(const float* in_a, const float* in_b, float* out) {
  const int g = lane_id() / 4;
  const int t = lane_id() % 4;
  const unsigned fa[4] = {to_tf32(in_a[g * 8 + t]), to_tf32(in_a[(g + 8) * 8 + t]), to_tf32(in_a[g * 8 + t + 4]),
                          to_tf32(in_a[(g + 8) * 8 + t + 4])};
  const unsigned fb[2] = {to_tf32(in_b[t * 8 + g]), to_tf32(in_b[(t + 4) * 8 + g])};
  float d[4] = {out[g * 8 + 2 * t], out[g * 8 + 2 * t + 1], out[(g + 8) * 8 + 2 * t], out[(g + 8) * 8 + 2 * t + 1]};
  mma_m16n8k8(d, fa, fb);
  out[g * 8 + 2 * t] = d[0];
  out[g * 8 + 2 * t + 1] = d[1];
  out[(g + 8) * 8 + 2 * t] = d[2];
  out[(g + 8) * 8 + 2 * t + 1] = d[3];
}

// out (4 matrices x 32 lanes x 2) = what each lane gets of four 8 x 8 matrices, stored one below the other; one warp.
template <bool transposed>
__global__ void matrix_fragments(const half* in, half* out) {
  __shared__ alignas(16) half staged[32][24];  // rows apart, as kernels hold them against bank conflicts
  const int lane = lane_id();
  for (int column = 0; column < 8; ++column) staged[lane][column] = in[lane * 8 + column];
  __syncwarp();
  unsigned found[4];
  load_matrices<transposed>(found, staged[lane]);
  for (int matrix = 0; matrix < 4; ++matrix) memcpy(out + (matrix * 32 + lane) * 2, &found[matrix], sizeof(unsigned));
}

template <typename T>
__global__ void widen(const T* in, float* out, int count) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < count) out[at] = to_float(in[at]);
}

template <typename T>
__global__ void narrow(const float* in, T* out, int count) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < count) out[at] = from_float<T>(in[at]);
}

__global__ void round_tf32(const float* in, unsigned* out, int count) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < count) out[at] = to_tf32(in[at]);
}

// out[linear thread of the grid] = its indices, packed.
__global__ void indices(long long* out) {
  const long long block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const long long thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const long long threads = blockDim.x * blockDim.y * blockDim.z;
  out[block * threads + thread] =
      blockIdx.z * 100000 + blockIdx.y * 10000 + blockIdx.x * 1000 + threadIdx.z * 100 + threadIdx.y * 10 + threadIdx.x;
}
