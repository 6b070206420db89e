// Adding to global memory from many thread blocks without reading it back. The order of the additions is not fixed, so
// a result made with these is not deterministic to the last bit.
#pragma once

#include <spmark/vec.cuh>

namespace spmark {

// *p += value.
__device__ __forceinline__ void atomic_add(float* p, float value) {
#ifdef SPMARK_HOST
  atomicAdd(p, value);
#else
  asm volatile("red.global.add.f32 [%0], %1;" ::"l"(p), "f"(value) : "memory");
#endif
}

// Each of N elements is added atomically, the vector as a whole is not; p must be aligned to the vector.
template <int N>
__device__ __forceinline__ void atomic_add(float* p, const Vec<float, N>& value) {
#if defined(SPMARK_HOST)
  auto* target = reinterpret_cast<Vec<float, N>*>(p);  // through the vector's type: the sanitizer checks its alignment
  for (int i = 0; i < N; ++i) atomicAdd(&(*target)[i], value[i]);
#elif __CUDA_ARCH__ >= 900
  if constexpr (N == 4) {
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(value[0]), "f"(value[1]), "f"(value[2]),
                 "f"(value[3])
                 : "memory");
  } else if constexpr (N == 2) {
    asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(p), "f"(value[0]), "f"(value[1]) : "memory");
  } else if constexpr (N == 1) {
    atomic_add(p, value[0]);
  } else {
    static_assert(N % 4 == 0, "a longer vector is added four at a time");
#pragma unroll
    for (int i = 0; i < N; i += 4) atomic_add(p + i, Vec<float, 4>{value[i], value[i + 1], value[i + 2], value[i + 3]});
  }
#else
#pragma unroll
  for (int i = 0; i < N; ++i) atomic_add(p + i, value[i]);
#endif
}

}  // namespace spmark
