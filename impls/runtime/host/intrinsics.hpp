// CUDA's intrinsics of one thread: bits, arithmetic, fences, cached loads and atomics. Included by simt.hpp.
#pragma once

// ---- bits ----

inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline int __popcll(unsigned long long value) { return __builtin_popcountll(value); }
inline int __ffs(int value) { return __builtin_ffs(value); }
inline int __ffsll(long long value) { return __builtin_ffsll(value); }
inline int __clz(int value) { return value == 0 ? 32 : __builtin_clz(static_cast<unsigned>(value)); }
inline int __clzll(long long value) {
  return value == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(value));
}

inline int __float_as_int(float value) { return __builtin_bit_cast(int, value); }
inline unsigned __float_as_uint(float value) { return __builtin_bit_cast(unsigned, value); }
inline float __int_as_float(int value) { return __builtin_bit_cast(float, value); }
inline float __uint_as_float(unsigned value) { return __builtin_bit_cast(float, value); }

// ---- arithmetic ----

#define SIMT_MIN_MAX(type)                                                                                             \
  constexpr type min(type a, type b) { return b < a ? b : a; }                                                         \
  constexpr type max(type a, type b) { return a < b ? b : a; }
SIMT_MIN_MAX(int)
SIMT_MIN_MAX(unsigned)
SIMT_MIN_MAX(long)
SIMT_MIN_MAX(unsigned long)
SIMT_MIN_MAX(long long)
SIMT_MIN_MAX(unsigned long long)
#undef SIMT_MIN_MAX
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

inline float rsqrtf(float value) { return 1.0f / sqrtf(value); }
inline float __expf(float value) { return expf(value); }
inline float __logf(float value) { return logf(value); }
inline float __fdividef(float a, float b) { return a / b; }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<unsigned long long>(a) * b) >> 32);
}

namespace simt::detail {

// Integers wrap, as they do on the device.
template <typename T>
T sum(T a, T b) {
  if constexpr (static_cast<T>(0.5) == 0) {
    __builtin_add_overflow(a, b, &a);
    return a;
  } else {
    return a + b;
  }
}

// Keeps a parameter out of deduction, so that atomicAdd(unsigned*, 1) compiles as in CUDA.
template <typename T>
using same = std::common_type_t<T>;

}  // namespace simt::detail

// ---- memory ----

// The host has one kind of load and one kind of store.
template <typename T>
T __ldg(const T* p) {
  return *p;
}
#define __ldcg __ldg
#define __ldcs __ldg
template <typename T>
void __stcg(T* p, simt::detail::same<T> value) {
  *p = value;
}
#define __stcs __stcg

// Threads take turns on one core, so memory is in order. The detector of the tests finds code that relies on it.
inline void __threadfence() { simt::fence(); }
inline void __threadfence_block() {}  // the detector does not count it: an access that needs it is reported
[[noreturn]] inline void __trap() { simt::fault("__trap"); }

// ---- atomics: each gives the old value ----

#define SIMT_ATOMIC(name, new_value)                                                                                   \
  template <typename T>                                                                                                \
  T name(T* p, simt::detail::same<T> value) {                                                                          \
    simt::start_atomic(p);                                                                                             \
    const T old = *p;                                                                                                  \
    *p = new_value;                                                                                                    \
    simt::stop_atomic();                                                                                               \
    return old;                                                                                                        \
  }
SIMT_ATOMIC(atomicExch, value)
SIMT_ATOMIC(atomicAdd, simt::detail::sum(old, value))
SIMT_ATOMIC(atomicSub, simt::detail::sum(old, simt::detail::sum<T>(~value, 1)))
SIMT_ATOMIC(atomicMax, max(old, value))
SIMT_ATOMIC(atomicMin, min(old, value))
SIMT_ATOMIC(atomicAnd, old& value)
SIMT_ATOMIC(atomicOr, old | value)
SIMT_ATOMIC(atomicXor, old ^ value)
#undef SIMT_ATOMIC

template <typename T>
T atomicCAS(T* p, simt::detail::same<T> expected, simt::detail::same<T> value) {
  simt::start_atomic(p);
  const T old = *p;
  if (old == expected) *p = value;
  simt::stop_atomic();
  return old;
}
