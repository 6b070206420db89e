// Matrix multiply-accumulate by one warp, d += a b, with the register layouts of PTX mma.sync. With g = lane / 4 and
// t = lane % 4: d[0], d[1] are row g, columns 2t and 2t + 1; d[2], d[3] the same columns of row g + 8.
#pragma once

#include <spmark/half.cuh>

namespace spmark {

// A float32 rounded to tf32 (10 bits of mantissa, ties away from zero), in the bits that mma takes.
__device__ __forceinline__ unsigned to_tf32(float value) {
#ifdef SPMARK_HOST
  const unsigned bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) >= 0x7f800000u) return bits;  // infinity and NaN stay
  return (bits + 0x1000u) & ~0x1fffu;
#else
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits;
#endif
}

#ifdef SPMARK_HOST

namespace detail {

// A lane's fragments; when the last lane has arrived, the fragments of all lanes are there at once.
struct MmaFragment {
  float* d;
  const unsigned* a;
  const unsigned* b;
};

// Element `which` of a register: one of two of 16 bits, or a tf32. The matrix unit reads the upper 19 bits of the
// latter: as on the device, an operand that was not rounded is cut.
template <typename T>
float element(unsigned bits, int which) {
  if constexpr (sizeof(T) == 4) {
    return __uint_as_float(bits & ~0x1fffu);
  } else {
    return to_float(T{static_cast<unsigned short>(bits >> 16 * which)});
  }
}

// d (16 x 8) += a (16 x K) b (K x 8).
template <typename T>
void multiply(void* const* lanes, size_t) {
  constexpr int kPacked = 4 / sizeof(T);  // elements of a register
  constexpr int K = 8 * kPacked;
  float a[16][K], b[8][K];
  for (int lane = 0; lane < 32; ++lane) {
    const auto* from = static_cast<const MmaFragment*>(lanes[lane]);
    for (int r = 0; r < 4; ++r) {
      for (int e = 0; e < kPacked; ++e) {
        a[lane / 4 + r % 2 * 8][(r / 2 * 4 + lane % 4) * kPacked + e] = element<T>(from->a[r], e);
        if (r < 2) b[lane / 4][(r * 4 + lane % 4) * kPacked + e] = element<T>(from->b[r], e);
      }
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float& d = static_cast<MmaFragment*>(lanes[row % 8 * 4 + column / 2])->d[row / 8 * 2 + column % 2];
      // Products are exact in double, and the one rounding at the end is at least as good as the unit's own.
      double sum = d;
      for (int k = 0; k < K; ++k) sum += static_cast<double>(a[row][k]) * static_cast<double>(b[column][k]);
      d = static_cast<float>(sum);
    }
  }
}

}  // namespace detail

#endif

namespace detail {

template <typename T>
inline constexpr bool kIsBfloat = false;
template <>
inline constexpr bool kIsBfloat<bfloat16> = true;

// T is float for tf32.
template <typename T>
__device__ __forceinline__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#ifdef SPMARK_HOST
  MmaFragment fragment{d, a, b};
  simt::collective(sizeof(T) == 4 ? "mma_m16n8k8" : "mma_m16n8k16", multiply<T>, 0xffffffffu, &fragment);
#else
#define SPMARK_MMA(kind)                                                                                               \
  asm volatile("mma.sync.aligned." kind " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"             \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                        \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
  if constexpr (sizeof(T) == 4) {
    SPMARK_MMA("m16n8k8.row.col.f32.tf32.tf32.f32");
  } else if constexpr (kIsBfloat<T>) {
    SPMARK_MMA("m16n8k16.row.col.f32.bf16.bf16.f32");
  } else {
    SPMARK_MMA("m16n8k16.row.col.f32.f16.f16.f32");
  }
#undef SPMARK_MMA
#endif
}

}  // namespace detail

// Inputs of T, half or bfloat16, two to a register, lower column (of a) or row (of b) in the lower bits. a (16 x 16):
// a[0] is row g, columns 2t and 2t + 1; a[1] row g + 8; a[2], a[3] the same rows, columns + 8. b (16 x 8): b[0] is rows
// 2t and 2t + 1 of column g; b[1] rows + 8.
template <typename T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  static_assert(sizeof(T) == 2, "the unit takes sixteen columns of 16 bits");
  detail::mma<T>(d, a, b);
}

// tf32 inputs (see to_tf32), one to a register. a (16 x 8): a[0] is row g, column t; a[1] row g + 8; a[2], a[3] the
// same rows, column t + 4. b (8 x 8): b[0] is row t of column g; b[1] row t + 4.
__device__ __forceinline__ void mma_m16n8k8(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  detail::mma<float>(d, a, b);
}

}  // namespace spmark
