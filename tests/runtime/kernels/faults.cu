// Kernels that each do one forbidden thing on purpose.

#include <spmark/async.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

using namespace spmark;

__global__ void barrier_in_half_the_threads(float* out) {
  if (threadIdx.x < 16) __syncthreads();
  out[threadIdx.x] = 1.0f;
}

__global__ void barrier_after_early_return(float* out, int count) {
  if (static_cast<int>(threadIdx.x) >= count) return;
  __syncthreads();
  out[threadIdx.x] = 1.0f;
}

__global__ void two_different_barriers(float* out) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = 1.0f;
}

__global__ void barrier_in_unequal_loops(float* out) {
  for (int i = 0; i <= static_cast<int>(threadIdx.x / 32); ++i) __syncthreads();
  out[threadIdx.x] = 1.0f;
}

__global__ void read_past_global(const float* in, float* out, int offset) {
  out[threadIdx.x] = in[static_cast<int>(threadIdx.x) + offset];
}

__global__ void write_past_global(float* out, int offset) { out[static_cast<int>(threadIdx.x) + offset] = 1.0f; }

__global__ void atomic_past_global(float* out, int offset) {
  atomicAdd(out + static_cast<int>(threadIdx.x) + offset, 1.0f);
}

__global__ void write_past_static_shared(float* out, int offset) {
  __shared__ float staged[32];
  staged[threadIdx.x] = 0.0f;
  __syncthreads();
  float* alias = staged;  // hidden from the bounds check of the array's own type
  alias[static_cast<int>(threadIdx.x) + offset] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = staged[threadIdx.x];
}

template <typename T, int size>
__global__ void index_past_static_shared(float* out, int offset) {
  __shared__ T staged[2][size];
  staged[0][static_cast<int>(threadIdx.x) + offset] = T{1};  // still inside the variable, but not inside the row
  __syncthreads();
  out[threadIdx.x] = staged[1][0];
}

__global__ void write_past_dynamic_shared(float* out, int offset) {
  extern __shared__ float dynamic[];
  dynamic[static_cast<int>(threadIdx.x) + offset] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = dynamic[threadIdx.x];
}

__global__ void misaligned_load(const float* in, float* out) {
  store<4>(out + 4 * threadIdx.x, load<4>(in + threadIdx.x));
}

__global__ void misaligned_shared_load(float* out) {
  __shared__ float staged[128];  // aligned to 4 bytes only: a vector of 16 needs alignas(16)
  staged[threadIdx.x] = 1.0f;
  __syncthreads();
  if (threadIdx.x < 8) store(out + 4 * threadIdx.x, load<4>(staged + 4 * threadIdx.x));
}

__global__ void misaligned_async(const float* in, float* out) {
  __shared__ alignas(16) float staged[64];
  copy_async<16>(staged + 4 * threadIdx.x, in + 4 * threadIdx.x + 1);
  commit_async();
  wait_async<0>();
  out[threadIdx.x] = staged[threadIdx.x];
}

__global__ void reads_uninitialised_static(float* out, int initialised) {
  __shared__ float staged[32];
  if (static_cast<int>(threadIdx.x) < initialised) staged[threadIdx.x] = 1.0f;
  __syncthreads();
  out[blockIdx.x * 32 + threadIdx.x] = staged[threadIdx.x];
}

__global__ void reads_uninitialised_dynamic(float* out, int initialised) {
  extern __shared__ __align__(16) float dynamic[];
  if (static_cast<int>(threadIdx.x) < initialised) dynamic[threadIdx.x] = 1.0f;
  __syncthreads();
  out[blockIdx.x * 32 + threadIdx.x] = dynamic[threadIdx.x];
}

template <bool commits, bool waits>
__global__ void unfinished_copy(const float* in, float* out) {
  __shared__ alignas(16) float staged[128];
  copy_async<16>(staged + 4 * threadIdx.x, in + 4 * threadIdx.x);
  if (commits) commit_async();
  if (waits) wait_async<0>();
  __syncthreads();
  store(out + 4 * threadIdx.x, load<4>(staged + 4 * threadIdx.x));
}

__global__ void missing_lane_in_shuffle(float* out) {
  float value = static_cast<float>(threadIdx.x);
  if (threadIdx.x != 7) value = __shfl_xor_sync(kFullMask, value, 1);
  __syncthreads();
  out[threadIdx.x] = value;
}

__global__ void lanes_in_different_collectives(float* out) {
  float value = static_cast<float>(threadIdx.x);
  if (threadIdx.x < 16) {
    value = __shfl_xor_sync(kFullMask, value, 1);
  } else {
    value = static_cast<float>(__ballot_sync(kFullMask, value > 3.0f));
  }
  out[threadIdx.x] = value;
}

__global__ void mask_without_the_caller(float* out) { out[threadIdx.x] = __shfl_sync(0x0000ffffu, 1.0f, 0); }

__global__ void reads_a_lane_outside_the_mask(float* out) {
  float value = 1.0f;
  if (threadIdx.x < 16) value = __shfl_sync(0x0000ffffu, value, 20);
  out[threadIdx.x] = value;
}

__global__ void never_ends(const volatile int* flag, float* out) {
  while (*flag == 0) {
  }
  out[threadIdx.x] = 1.0f;
}

__global__ void traps(float* out) {
  if (threadIdx.x == 5) __trap();
  out[threadIdx.x] = 1.0f;
}

__global__ void writes_to_its_input(const float* in) { const_cast<float*>(in)[threadIdx.x] = 2.0f; }

__global__ void takes_int(float* out, int count) {
  if (static_cast<int>(threadIdx.x) < count) out[threadIdx.x] = 1.0f;
}

__global__ void reads_uninitialised_local(const float* in, float* out) {
  float sum[4];
  for (int i = 0; i < 4; ++i) sum[i] += in[threadIdx.x];
  out[threadIdx.x] = sum[threadIdx.x % 4];
}

__global__ void overflows_its_stack(const int* depth, float* out) {
  struct Recursion {
    static __device__ __noinline__ float down(const int* depth, int level) {
      volatile float frame[256];
      frame[level % 256] = static_cast<float>(level);
      return level >= *depth ? frame[level % 256] : down(depth, level + 1) + frame[level % 256];
    }
  };
  out[threadIdx.x] = Recursion::down(depth, 0);
}
