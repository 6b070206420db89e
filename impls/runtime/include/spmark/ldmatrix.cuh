// Loading matrix fragments from shared memory by one warp (ldmatrix), in the register layouts that mma.cuh takes.
#pragma once

#include <spmark/half.cuh>
#include <spmark/vec.cuh>

namespace spmark {

#ifdef SPMARK_HOST

namespace detail {

// A lane's request: the row that it points to, which it has read itself, and where its registers go.
template <typename T>
struct MatrixRow {
  Vec<T, 8> row;
  unsigned* out;
};

template <bool transposed, typename T>
void load_matrices(void* const* lanes, size_t) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      const auto at = [&](int row, int column) -> unsigned {
        if (!transposed) std::swap(row, column);
        return static_cast<MatrixRow<T>*>(lanes[matrix * 8 + row])->row[column].bits;
      };
      const unsigned low = at(lane % 4 * 2, lane / 4), high = at(lane % 4 * 2 + 1, lane / 4);
      static_cast<MatrixRow<T>*>(lanes[lane])->out[matrix] = low | high << 16;
    }
  }
}

}  // namespace detail

#endif

// Four 8 x 8 matrices of halves or bfloat16: lane 8 q + r points to row r of matrix q, 16 bytes of shared memory
// aligned to 16. With g = lane / 4 and t = lane % 4, out[q] holds the elements 2t and 2t + 1 of column g of matrix q
// where transposed, else of row g: the lower index in the lower bits.
template <bool transposed = true, typename T>
__device__ __forceinline__ void load_matrices(unsigned (&out)[4], const T* row) {
  static_assert(sizeof(T) == 2, "ldmatrix moves 16 bits");
#ifdef SPMARK_HOST
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) {
    simt::fault("load_matrices: misaligned address: a row starts at %p", static_cast<const void*>(row));
  }
  detail::MatrixRow<T> request{load<8>(row), out};
  simt::collective("load_matrices", detail::load_matrices<transposed, T>, 0xffffffffu, &request);
#else
  const unsigned from = static_cast<unsigned>(__cvta_generic_to_shared(row));
#define SPMARK_LDMATRIX(kind)                                                                                          \
  asm volatile("ldmatrix.sync.aligned.m8n8.x4" kind ".shared.b16 {%0, %1, %2, %3}, [%4];"                              \
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])                                                \
               : "r"(from)                                                                                             \
               : "memory")
  if constexpr (transposed)
    SPMARK_LDMATRIX(".trans");
  else
    SPMARK_LDMATRIX("");
#undef SPMARK_LDMATRIX
#endif
}

}  // namespace spmark
