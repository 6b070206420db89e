// The 16-bit floats and their conversions. On a device `half` is CUDA's; on the host it is a type of our own whose
// conversions round to nearest even, as cvt.rn.f16.f32 does, so that both give the same bits. `bfloat16`, with
// float32's exponent, is a type of our own everywhere, so that kernels do without CUDA's header of it.
#pragma once

// Storage only: like the kernels, it has no arithmetic of its own. Trivial, so that it may live in unions and shared
// memory.
struct alignas(2) bfloat16 {
  unsigned short bits;
};

namespace spmark {

// Round a float32 to T (half, bfloat16 or float), to nearest even.
template <typename T>
__device__ __forceinline__ T from_float(float value);

// The two elements of T, half or bfloat16, in a word as memory holds them.
template <typename T>
__device__ __forceinline__ void to_floats(unsigned word, float& first, float& second);

// Two halves in a word as memory holds them, by one instruction.
__device__ __forceinline__ unsigned to_halves(float first, float second);

__device__ __forceinline__ float to_float(bfloat16 value) {
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}

}  // namespace spmark

#ifndef SPMARK_HOST

#include <cuda_fp16.h>

namespace spmark {

__device__ __forceinline__ float to_float(half value) { return __half2float(value); }

// The compiler does not look into assembly: it keeps a word whole until here.
template <>
__device__ __forceinline__ void to_floats<half>(unsigned word, float& first, float& second) {
  asm("{.reg .b16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}"
      : "=f"(first), "=f"(second)
      : "r"(word));
}

template <>
__device__ __forceinline__ void to_floats<bfloat16>(unsigned word, float& first, float& second) {
  asm("shl.b32 %0, %2, 16; and.b32 %1, %2, 0xffff0000;" : "=f"(first), "=f"(second) : "r"(word));
}

template <>
__device__ __forceinline__ half from_float<half>(float value) {
  return __float2half_rn(value);
}

__device__ __forceinline__ unsigned to_halves(float first, float second) {
  unsigned word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
}

template <>
__device__ __forceinline__ bfloat16 from_float<bfloat16>(float value) {
  bfloat16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
}

}  // namespace spmark

#else

struct alignas(2) half {
  unsigned short bits;
};

template <>
inline constexpr char simt::kind_of<half> = 'f';
template <>
inline constexpr char simt::kind_of<bfloat16> = 'u';  // NumPy has no such type: arrays hold the bits

namespace spmark {

inline float to_float(half value) {
  // As float32 the bits are 2^-112 of the number, exactly, subnormals included.
  const unsigned magnitude = (value.bits & 0x7fffu) << 13;
  unsigned bits = __float_as_uint(__uint_as_float(magnitude) * 0x1p112f);
  // Infinity and NaN keep their payload, and a signalling NaN becomes quiet.
  if (magnitude >= 0x0f800000u) bits = magnitude | 0x7f800000u | (magnitude > 0x0f800000u ? 0x400000u : 0u);
  return __uint_as_float(bits | (value.bits & 0x8000u) << 16);
}

template <typename T>
void to_floats(unsigned word, float& first, float& second) {
  first = to_float(T{static_cast<unsigned short>(word)});
  second = to_float(T{static_cast<unsigned short>(word >> 16)});
}

template <>
inline half from_float<half>(float value) {
  const unsigned bits = __float_as_uint(value);
  const unsigned magnitude = bits & 0x7fffffffu;
  unsigned result = bits >> 16 & 0x8000u;
  if (magnitude > 0x7f800000u) {
    result = 0x7fffu;  // cvt.rn.f16.f32 gives the canonical NaN, without sign or payload
  } else if (magnitude >= 0x477ff000u) {
    result |= 0x7c00u;  // at or above 65520, half way to the number after the largest: infinity
  } else if (magnitude >= 0x38800000u) {
    // Normal: add half of the last place kept, less one where that place is even, then cut; a carry moves the exponent.
    const unsigned rebased = magnitude - ((127u - 15u) << 23);
    result |= (rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13;
  } else {
    // Subnormal: adding 0.5 puts the last place of a half (2^-24) at the last place of the sum, which the adder rounds.
    result |= __float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u;
  }
  return {static_cast<unsigned short>(result)};
}

inline unsigned to_halves(float first, float second) {
  const half halves[2] = {from_float<half>(first), from_float<half>(second)};
  unsigned word;
  memcpy(&word, halves, sizeof(word));
  return word;
}

template <>
inline bfloat16 from_float<bfloat16>(float value) {
  const unsigned bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {0x7fff};  // as cvt.rn.bf16.f32 does
  return {static_cast<unsigned short>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

}  // namespace spmark

#endif

namespace spmark {

__device__ __forceinline__ float to_float(float value) { return value; }

template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}

}  // namespace spmark
