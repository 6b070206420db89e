// The 16-bit float with float32's exponent. Its conversions are integer arithmetic, so that a device and the host give
// the same bits.
#pragma once

// Storage only, as `half` on the host is.
struct alignas(2) bfloat16 {
  unsigned short bits;
};

#ifdef SPMARK_HOST
template <>
inline constexpr char simt::kind_of<bfloat16> = 'u';  // NumPy has no such type: arrays hold the bits
#endif

namespace spmark {

__device__ __forceinline__ float to_float(bfloat16 value) {
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}

// Round a float32 to the nearest bfloat16, ties to even; NaN stays NaN.
__device__ __forceinline__ bfloat16 to_bfloat16(float value) {
  const unsigned bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {0x7fff};
  return {static_cast<unsigned short>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

}  // namespace spmark
