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

// N elements of T that a load brings, with 16 bits in whole words until they are multiplied. A compiler takes a vector
// of halves apart where it is loaded, and so waits for the load there.
template <typename T, int N, bool paired = sizeof(T) == 2 && N % 2 == 0>
struct Packed {
  using Word = T;
  Vec<Word, N> words;
};

template <typename T, int N>
struct Packed<T, N, true> {
  using Word = unsigned;
  Vec<Word, N / 2> words;
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

// The elements in float32; here 16 bits are taken out of their words.
template <typename T, int N>
__device__ __forceinline__ Vec<float, N> unpacked(const Packed<T, N>& packed) {
  Vec<float, N> result;
  if constexpr (sizeof(typename Packed<T, N>::Word) == sizeof(T)) {
#pragma unroll
    for (int i = 0; i < N; ++i) result[i] = to_float(packed.words[i]);
  } else {
#pragma unroll
    for (int i = 0; i < N; i += 2) to_floats<T>(packed.words[i / 2], result[i], result[i + 1]);
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

namespace detail {

#ifdef SPMARK_HOST

// The host has one kind of load; the alignment sanitizer checks it.
template <typename T, int N>
using RawOf = Vec<T, N>;

template <typename R>
void load_where(R& r, bool wanted, const void* p) {
  r = wanted ? *static_cast<const R*>(p) : R{};
}

template <typename R>
void load_streaming(R& r, const void* p) {
  r = *static_cast<const R*>(p);
}

#else

// The register type that carries a vector of that many bytes through one instruction.
template <int Bytes>
struct Raw;

#define SPMARK_ONE(constraint) constraint(r)
#define SPMARK_TWO(constraint) constraint(r.x), constraint(r.y)
#define SPMARK_FOUR(constraint) constraint(r.x), constraint(r.y), constraint(r.z), constraint(r.w)
#define SPMARK_RAW(bytes, Register, kind, type, zeros, registers, at, is_wanted, operands)                             \
  template <>                                                                                                          \
  struct Raw<bytes> {                                                                                                  \
    using Type = Register;                                                                                             \
  };                                                                                                                   \
  __device__ __forceinline__ void load_where(Register& r, bool wanted, const void* p) {                                \
    asm("{.reg .pred q; setp.ne.s32 q, " is_wanted ", 0; " zeros "\n"                                                  \
        "@q ld.global.nc." type " " registers ", [" at "];}"                                                           \
        : operands("=&" kind)                                                                                          \
        : "l"(p), "r"(int(wanted)));                                                                                   \
  }                                                                                                                    \
  __device__ __forceinline__ void load_streaming(Register& r, const void* p) {                                         \
    asm("ld.global.nc.L1::no_allocate." type " " registers ", [" at "];" : operands("=" kind) : "l"(p));               \
  }
SPMARK_RAW(2, unsigned short, "h", "u16", "mov.b16 %0, 0;", "%0", "%1", "%2", SPMARK_ONE)
SPMARK_RAW(4, unsigned, "r", "u32", "mov.b32 %0, 0;", "%0", "%1", "%2", SPMARK_ONE)
SPMARK_RAW(8, uint2, "r", "v2.u32", "mov.b32 %0, 0; mov.b32 %1, 0;", "{%0, %1}", "%2", "%3", SPMARK_TWO)
SPMARK_RAW(16, uint4, "r", "v4.u32", "mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0;", "{%0, %1, %2, %3}",
           "%4", "%5", SPMARK_FOUR)
#undef SPMARK_RAW

template <typename T, int N>
using RawOf = typename Raw<sizeof(T) * N>::Type;

#endif

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
  detail::RawOf<T, N> raw;
  detail::load_where(raw, wanted, p);
  return detail::unpack<T, N>(raw);
}

// Load from global memory as `load_read_only` does, for data that is read once: reused data stays in L1.
template <int N, typename T>
__device__ __forceinline__ Vec<T, N> load_streaming(const T* p) {
  detail::RawOf<T, N> raw;
  detail::load_streaming(raw, p);
  return detail::unpack<T, N>(raw);
}

// Store to global or shared memory.
template <int N, typename T>
__device__ __forceinline__ void store(T* p, const Vec<T, N>& value) {
  *reinterpret_cast<detail::RawOf<T, N>*>(p) = detail::pack(value);
}

// Store to global memory that this kernel does not read again (evicted first).
template <int N, typename T>
__device__ __forceinline__ void store_streaming(T* p, const Vec<T, N>& value) {
  __stcs(reinterpret_cast<detail::RawOf<T, N>*>(p), detail::pack(value));
}

// Put float32 sums aside for those that add them up later. Longer vectors are stored 16 bytes at a time.
template <int N>
__device__ __forceinline__ void put_aside(float* to, const Vec<float, N>& sum) {
  constexpr int kAtOnce = N < 4 ? N : 4;
#pragma unroll
  for (int i = 0; i < N; i += kAtOnce) {
    Vec<float, kAtOnce> part;
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) part[k] = sum[i + k];
    store(to + i, part);
  }
}

// Add what `put_aside` has put there.
template <int N>
__device__ __forceinline__ void add_aside(Vec<float, N>& sum, const float* from) {
  constexpr int kAtOnce = N < 4 ? N : 4;
#pragma unroll
  for (int i = 0; i < N; i += kAtOnce) {
    const Vec<float, kAtOnce> part = load<kAtOnce>(from + i);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) sum[i + k] += part[k];
  }
}

// The whole product of two words, in one instruction. Under a condition the compiler makes three of the same in C++.
__device__ __forceinline__ size_t product(unsigned a, unsigned b) {
#ifdef SPMARK_HOST
  return static_cast<size_t>(a) * b;
#else
  size_t result;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(result) : "r"(a), "r"(b));
  return result;
#endif
}

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
