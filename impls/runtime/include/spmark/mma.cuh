// Matrix multiply-accumulate by one warp, d += a b, with the register layouts of PTX mma.sync. With g = lane / 4 and
// t = lane % 4: d[0], d[1] are row g, columns 2t and 2t + 1; d[2], d[3] the same columns of row g + 8.
#pragma once

#include <spmark/half.cuh>

namespace spmark {

// A float32 rounded to tf32 (10 bits of mantissa, ties away from zero), in the bits that mma takes.
__device__ __forceinline__ unsigned to_tf32(float value) {
#ifdef SPMARK_HOST
  unsigned bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
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

inline float half_of(unsigned pair, int which) {
  return to_float(half{static_cast<unsigned short>(which == 0 ? pair & 0xffffu : pair >> 16)});
}

// The matrix unit reads the upper 19 bits: as on the device, an operand that was not rounded is cut.
inline float tf32_of(unsigned bits) {
  bits &= ~0x1fffu;
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

// d (16 x 8) += a (16 x K) b (K x 8), where element(lane fragments, row or column, k) reads the operands' layouts.
template <int K, typename ReadA, typename ReadB>
void multiply(void* const* lanes, ReadA read_a, ReadB read_b) {
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float& d = static_cast<MmaFragment*>(lanes[row % 8 * 4 + column / 2])->d[row / 8 * 2 + column % 2];
      // Products are exact in double, and the one rounding at the end is at least as good as the unit's own.
      double sum = d;
      for (int k = 0; k < K; ++k) {
        sum += static_cast<double>(read_a(lanes, row, k)) * static_cast<double>(read_b(lanes, column, k));
      }
      d = static_cast<float>(sum);
    }
  }
}

inline void multiply_f16(void* const* lanes, unsigned) {
  multiply<16>(
      lanes,
      [](void* const* all, int row, int k) {
        const auto* from = static_cast<const MmaFragment*>(all[row % 8 * 4 + k % 8 / 2]);
        return half_of(from->a[row / 8 + k / 8 * 2], k % 2);
      },
      [](void* const* all, int column, int k) {
        const auto* from = static_cast<const MmaFragment*>(all[column * 4 + k % 8 / 2]);
        return half_of(from->b[k / 8], k % 2);
      });
}

inline void multiply_tf32(void* const* lanes, unsigned) {
  multiply<8>(
      lanes,
      [](void* const* all, int row, int k) {
        const auto* from = static_cast<const MmaFragment*>(all[row % 8 * 4 + k % 4]);
        return tf32_of(from->a[row / 8 + k / 4 * 2]);
      },
      [](void* const* all, int column, int k) {
        const auto* from = static_cast<const MmaFragment*>(all[column * 4 + k % 4]);
        return tf32_of(from->b[k / 4]);
      });
}

}  // namespace detail

#endif

// Half inputs, two to a register, lower column (of a) or row (of b) in the lower bits. a (16 x 16): a[0] is row g,
// columns 2t and 2t + 1; a[1] row g + 8; a[2], a[3] the same rows, columns + 8. b (16 x 8): b[0] is rows 2t and 2t + 1
// of column g; b[1] rows + 8.
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#ifdef SPMARK_HOST
  detail::MmaFragment fragment{d, a, b};
  simt::collective("mma_m16n8k16", detail::multiply_f16, 0xffffffffu, &fragment);
#else
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// tf32 inputs (see to_tf32), one to a register. a (16 x 8): a[0] is row g, column t; a[1] row g + 8; a[2], a[3] the
// same rows, column t + 4. b (8 x 8): b[0] is row t of column g; b[1] row t + 4.
__device__ __forceinline__ void mma_m16n8k8(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#ifdef SPMARK_HOST
  detail::MmaFragment fragment{d, a, b};
  simt::collective("mma_m16n8k8", detail::multiply_tf32, 0xffffffffu, &fragment);
#else
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

}  // namespace spmark
