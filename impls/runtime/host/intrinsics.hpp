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
inline unsigned __brev(unsigned value) {
  unsigned result = 0;
  for (int bit = 0; bit < 32; ++bit) result |= ((value >> bit) & 1u) << (31 - bit);
  return result;
}

namespace simt::detail {

template <typename To, typename From>
To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From), "reinterpreting keeps the size");
  To result;
  __builtin_memcpy(&result, &value, sizeof(result));
  return result;
}

// Keeps a parameter out of deduction, so that atomicAdd(unsigned*, 1) compiles as in CUDA.
template <typename T>
struct Same {
  using type = T;
};
template <typename T>
using same = typename Same<T>::type;

}  // namespace simt::detail

inline int __float_as_int(float value) { return simt::detail::bits_as<int>(value); }
inline unsigned __float_as_uint(float value) { return simt::detail::bits_as<unsigned>(value); }
inline float __int_as_float(int value) { return simt::detail::bits_as<float>(value); }
inline float __uint_as_float(unsigned value) { return simt::detail::bits_as<float>(value); }

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
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<unsigned long long>(a) * b) >> 32);
}
inline int __mulhi(int a, int b) { return static_cast<int>((static_cast<long long>(a) * b) >> 32); }

// ---- memory ----

template <typename T>
T __ldg(const T* p) {
  return *p;
}
template <typename T>
T __ldcs(const T* p) {
  return *p;
}
template <typename T>
T __ldcg(const T* p) {
  return *p;
}
template <typename T>
void __stcs(T* p, simt::detail::same<T> value) {
  *p = value;
}
template <typename T>
void __stcg(T* p, simt::detail::same<T> value) {
  *p = value;
}

// Threads take turns on one core, so memory is in order. The detector of the tests finds code that relies on it.
inline void __threadfence() { simt::fence(); }
inline void __threadfence_block() {}  // the detector does not count it: an access that needs it is reported
[[noreturn]] inline void __trap() { simt::fault("__trap"); }

// ---- atomics: each gives the old value ----

namespace simt::detail {

template <typename T, typename Change>
T change(T* p, Change change_one) {
  start_atomic(p);
  const T old = *p;
  *p = change_one(old);
  stop_atomic();
  return old;
}

}  // namespace simt::detail

template <typename T>
T atomicExch(T* p, simt::detail::same<T> value) {
  return simt::detail::change(p, [=](T) { return value; });
}
template <typename T>
T atomicAdd(T* p, simt::detail::same<T> value) {
  return simt::detail::change(p, [=](T old) {
    if constexpr (static_cast<T>(0.5) == 0) {
      __builtin_add_overflow(old, value, &old);  // integers wrap, as they do on the device
      return old;
    } else {
      return old + value;
    }
  });
}
template <typename T>
T atomicSub(T* p, simt::detail::same<T> value) {
  return simt::detail::change(p, [=](T old) {
    __builtin_sub_overflow(old, value, &old);
    return old;
  });
}
template <typename T>
T atomicMax(T* p, simt::detail::same<T> value) {
  return simt::detail::change(p, [=](T old) { return max(old, value); });
}
template <typename T>
T atomicMin(T* p, simt::detail::same<T> value) {
  return simt::detail::change(p, [=](T old) { return min(old, value); });
}
template <typename T>
T atomicAnd(T* p, simt::detail::same<T> value) {
  return simt::detail::change(p, [=](T old) { return old & value; });
}
template <typename T>
T atomicOr(T* p, simt::detail::same<T> value) {
  return simt::detail::change(p, [=](T old) { return old | value; });
}
template <typename T>
T atomicXor(T* p, simt::detail::same<T> value) {
  return simt::detail::change(p, [=](T old) { return old ^ value; });
}
template <typename T>
T atomicCAS(T* p, simt::detail::same<T> expected, simt::detail::same<T> value) {
  return simt::detail::change(p, [=](T old) { return old == expected ? value : old; });
}
