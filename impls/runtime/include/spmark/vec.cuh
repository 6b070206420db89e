// Vectors of 2, 4, 8 or 16 bytes that move in one instruction. Pointers must be aligned to the whole vector: a
// misaligned one is a fault on a device and in the host ring alike.
#pragma once

#include <spmark/half.cuh>

#ifdef __CUDACC_RTC__
using int64_t = long;  // NVRTC has no <cstdint>; 64 bits wide on every platform that CUDA for Linux knows
#endif

namespace spmark {

// N elements of T, aligned as one up to 16 bytes. A longer one (float32 sums of eight halves) stays in registers.
template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vec {
  static_assert(N > 0 && (N & (N - 1)) == 0, "the number of elements must be a power of two");

  T v[N];

  __device__ __forceinline__ T& operator[](int i) { return v[i]; }
  __device__ __forceinline__ const T& operator[](int i) const { return v[i]; }
};

// N elements of T that a load brings, with halves in whole words until they are multiplied. A compiler takes a vector
// of halves apart where it is loaded, and so waits for the load there.
template <typename T, int N>
struct Packed {
  using Word = T;
  Vec<Word, N> words;
};

template <int N>
struct Packed<half, N> {
  using Word = unsigned;
  Vec<Word, N / 2> words;
};

template <>
struct Packed<half, 1> {
  using Word = half;
  Vec<Word, 1> words;
};

// All elements zero.
template <typename T, int N>
__device__ __forceinline__ Vec<T, N> zeros() {
  Vec<T, N> result;
#pragma unroll
  for (int i = 0; i < N; ++i) result[i] = from_float<T>(0.0f);
  return result;
}

// acc += a * b, accumulated in float32 whatever T is.
template <typename T, int N>
__device__ __forceinline__ void axpy(Vec<float, N>& acc, float a, const Vec<T, N>& b) {
#pragma unroll
  for (int i = 0; i < N; ++i) acc[i] = fmaf(a, to_float(b[i]), acc[i]);
}

// The elements in float32; here halves are taken out of their words.
template <typename T, int N>
__device__ __forceinline__ Vec<float, N> unpacked(const Packed<T, N>& packed) {
  Vec<float, N> result;
  if constexpr (sizeof(typename Packed<T, N>::Word) == sizeof(T)) {
#pragma unroll
    for (int i = 0; i < N; ++i) result[i] = to_float(packed.words[i]);
  } else {
#pragma unroll
    for (int i = 0; i < N; i += 2) to_floats(packed.words[i / 2], result[i], result[i + 1]);
  }
  return result;
}

template <typename T, int N>
__device__ __forceinline__ void axpy(Vec<float, N>& acc, float a, const Packed<T, N>& b) {
  axpy(acc, a, unpacked(b));
}

// sum of a[i] * b[i] added to acc, in float32.
template <typename T, int N>
__device__ __forceinline__ float dot(const Vec<T, N>& a, const Vec<T, N>& b, float acc) {
#pragma unroll
  for (int i = 0; i < N; ++i) acc = fmaf(to_float(a[i]), to_float(b[i]), acc);
  return acc;
}

// Round every element of a float32 vector to T.
template <typename T, int N>
__device__ __forceinline__ Vec<T, N> round_to(const Vec<float, N>& value) {
  Vec<T, N> result;
#pragma unroll
  for (int i = 0; i < N; ++i) result[i] = from_float<T>(value[i]);
  return result;
}

#ifndef SPMARK_HOST

namespace detail {

// The register type that carries a vector of that many bytes through one instruction.
template <int Bytes>
struct Raw;

template <>
struct Raw<2> {
  using type = unsigned short;
  static __device__ __forceinline__ type load_where(bool wanted, const void* p) {
    type r;
    asm("{.reg .pred q; setp.ne.s32 q, %1, 0; mov.b16 %0, 0;\n"
        "@q ld.global.nc.u16 %0, [%2];}"
        : "=&h"(r)
        : "r"(int(wanted)), "l"(p));
    return r;
  }
  static __device__ __forceinline__ type load_streaming(const void* p) {
    type r;
    asm("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(r) : "l"(p));
    return r;
  }
  static __device__ __forceinline__ void store_streaming(void* p, type r) {
    asm volatile("st.global.cs.u16 [%0], %1;" ::"l"(p), "h"(r) : "memory");
  }
};

template <>
struct Raw<4> {
  using type = unsigned;
  static __device__ __forceinline__ type load_where(bool wanted, const void* p) {
    type r;
    asm("{.reg .pred q; setp.ne.s32 q, %1, 0; mov.b32 %0, 0;\n"
        "@q ld.global.nc.u32 %0, [%2];}"
        : "=&r"(r)
        : "r"(int(wanted)), "l"(p));
    return r;
  }
  static __device__ __forceinline__ type load_streaming(const void* p) {
    type r;
    asm("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(r) : "l"(p));
    return r;
  }
  static __device__ __forceinline__ void store_streaming(void* p, type r) {
    asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(p), "r"(r) : "memory");
  }
};

template <>
struct Raw<8> {
  using type = uint2;
  static __device__ __forceinline__ type load_where(bool wanted, const void* p) {
    type r;
    asm("{.reg .pred q; setp.ne.s32 q, %2, 0; mov.b32 %0, 0; mov.b32 %1, 0;\n"
        "@q ld.global.nc.v2.u32 {%0, %1}, [%3];}"
        : "=&r"(r.x), "=&r"(r.y)
        : "r"(int(wanted)), "l"(p));
    return r;
  }
  static __device__ __forceinline__ type load_streaming(const void* p) {
    type r;
    asm("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(r.x), "=r"(r.y) : "l"(p));
    return r;
  }
  static __device__ __forceinline__ void store_streaming(void* p, type r) {
    asm volatile("st.global.cs.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(r.x), "r"(r.y) : "memory");
  }
};

template <>
struct Raw<16> {
  using type = uint4;
  static __device__ __forceinline__ type load_where(bool wanted, const void* p) {
    type r;
    asm("{.reg .pred q; setp.ne.s32 q, %4, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0;\n"
        "@q ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%5];}"
        : "=&r"(r.x), "=&r"(r.y), "=&r"(r.z), "=&r"(r.w)
        : "r"(int(wanted)), "l"(p));
    return r;
  }
  static __device__ __forceinline__ type load_streaming(const void* p) {
    type r;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
        : "l"(p));
    return r;
  }
  static __device__ __forceinline__ void store_streaming(void* p, type r) {
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(r.x), "r"(r.y), "r"(r.z), "r"(r.w)
                 : "memory");
  }
};

template <typename T, int N>
using RawOf = typename Raw<sizeof(T) * N>::type;

template <typename T, int N>
__device__ __forceinline__ Vec<T, N> unpack(RawOf<T, N> raw) {
  Vec<T, N> result;
  static_assert(sizeof(result) == sizeof(raw), "the register carries exactly the vector");
  memcpy(&result, &raw, sizeof(raw));
  return result;
}

template <typename T, int N>
__device__ __forceinline__ RawOf<T, N> pack(const Vec<T, N>& value) {
  RawOf<T, N> raw;
  memcpy(&raw, &value, sizeof(raw));
  return raw;
}

}  // namespace detail

// Load from global or shared memory.
template <int N, typename T>
__device__ __forceinline__ Vec<T, N> load(const T* p) {
  return detail::unpack<T, N>(*reinterpret_cast<const detail::RawOf<T, N>*>(p));
}

// Load from global memory that nothing writes while the kernel runs (ld.global.nc).
template <int N, typename T>
__device__ __forceinline__ Vec<T, N> load_read_only(const T* p) {
  return detail::unpack<T, N>(__ldg(reinterpret_cast<const detail::RawOf<T, N>*>(p)));
}

// The same where it is wanted, else zeros without a load. With an `if` in place of it the compiler waits for one load
// before it begins the next.
template <int N, typename T>
__device__ __forceinline__ Vec<T, N> load_read_only_where(bool wanted, const T* p) {
  return detail::unpack<T, N>(detail::Raw<sizeof(T) * N>::load_where(wanted, p));
}

// Load from global memory as `load_read_only` does, for data that is read once: reused data stays in L1.
template <int N, typename T>
__device__ __forceinline__ Vec<T, N> load_streaming(const T* p) {
  return detail::unpack<T, N>(detail::Raw<sizeof(T) * N>::load_streaming(p));
}

// The whole product of two words, in one instruction. Under a condition the compiler makes three of the same in C++.
__device__ __forceinline__ size_t product(unsigned a, unsigned b) {
  size_t result;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(result) : "r"(a), "r"(b));
  return result;
}

// Store to global or shared memory.
template <int N, typename T>
__device__ __forceinline__ void store(T* p, const Vec<T, N>& value) {
  *reinterpret_cast<detail::RawOf<T, N>*>(p) = detail::pack(value);
}

// Store to global memory that this kernel does not read again (evicted first).
template <int N, typename T>
__device__ __forceinline__ void store_streaming(T* p, const Vec<T, N>& value) {
  detail::Raw<sizeof(T) * N>::store_streaming(p, detail::pack(value));
}

#else

// The host has one kind of load and one kind of store; the alignment sanitizer checks both.
template <int N, typename T>
Vec<T, N> load(const T* p) {
  return *reinterpret_cast<const Vec<T, N>*>(p);
}

template <int N, typename T>
Vec<T, N> load_read_only(const T* p) {
  return load<N>(p);
}

template <int N, typename T>
Vec<T, N> load_read_only_where(bool wanted, const T* p) {
  return wanted ? load<N>(p) : Vec<T, N>{};
}

template <int N, typename T>
Vec<T, N> load_streaming(const T* p) {
  return load<N>(p);
}

inline size_t product(unsigned a, unsigned b) { return static_cast<size_t>(a) * b; }

template <int N, typename T>
void store(T* p, const Vec<T, N>& value) {
  *reinterpret_cast<Vec<T, N>*>(p) = value;
}

template <int N, typename T>
void store_streaming(T* p, const Vec<T, N>& value) {
  store(p, value);
}

#endif

// As load_read_only, for elements that are used much later.
template <int N, typename T>
__device__ __forceinline__ Packed<T, N> load_packed(const T* p) {
  using Word = typename Packed<T, N>::Word;
  return {load_read_only<N * sizeof(T) / sizeof(Word)>(reinterpret_cast<const Word*>(p))};
}

// The same where it is wanted, else zeros without a load.
template <int N, typename T>
__device__ __forceinline__ Packed<T, N> load_packed_where(bool wanted, const T* p) {
  using Word = typename Packed<T, N>::Word;
  return {load_read_only_where<N * sizeof(T) / sizeof(Word)>(wanted, reinterpret_cast<const Word*>(p))};
}

// Row `row` of a row-major matrix. A product of signed words would take five instructions.
template <typename P>
__device__ __forceinline__ P* row_of(P* first, unsigned row, unsigned row_bytes) {
  return reinterpret_cast<P*>(reinterpret_cast<size_t>(first) + product(row, row_bytes));
}

}  // namespace spmark
