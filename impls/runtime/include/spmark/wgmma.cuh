// Matrix multiply-accumulate by a warpgroup, four warps in a row, out of shared memory (wgmma, of sm_90a alone). It
// runs beside its warpgroup until that waits; what is multiplied may not be overwritten before.
//
// PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions" and "Shared Memory Matrix Layout". Operands are blocks of
// 64 x 64 elements of 16 bits, row by row, with 128-byte swizzling: the left one is K-major, the right one N-major.
#pragma once

#include <spmark/async.cuh>
#include <spmark/half.cuh>
#include <spmark/mma.cuh>
#include <spmark/warp.cuh>

namespace spmark {

constexpr int kBlockSide = 64, kBlock = kBlockSide * kBlockSide;  // elements of a block

// The first multiple of kBlockAlignment in shared memory: blocks begin at multiples. Said to be unknown, since the
// compiler would work it out again before each use.
constexpr int kBlockAlignment = 1024;  // bytes
__device__ __forceinline__ unsigned char* first_block(unsigned char* shared) {
  unsigned char* first =
      shared + (kBlockAlignment - reinterpret_cast<size_t>(shared) % kBlockAlignment) % kBlockAlignment;
#ifndef SPMARK_HOST
  asm volatile("" : "+l"(first));
#endif
  return first;
}

// Where in a block the eight elements of a row from `column` on lie: eight rows have theirs in different banks.
__device__ __forceinline__ int in_block(int row, int column) { return row * kBlockSide + (column / 8 ^ row % 8) * 8; }

// Start copying kBlockSide rows of `columns` elements, `stride` apart, into blocks side by side; zeros past
// `valid_rows` and `valid_columns`, multiples of 8. All threads of the thread block take part; they commit and wait.
template <int columns, int threads, typename T>
__device__ __forceinline__ void copy_blocks(T* blocks, const T* from, int stride, int valid_rows, int valid_columns) {
  const int piece = threadIdx.x % 8 * 8, first = threadIdx.x / 8;
#pragma unroll
  for (int column = piece; column < columns; column += kBlockSide)
#pragma unroll
    for (int row = first; row < kBlockSide; row += threads / 8)
      copy_async<16>(blocks + column / kBlockSide * kBlock + in_block(row, piece),
                     from + static_cast<int64_t>(row) * stride + column, row < valid_rows && column < valid_columns);
}

// Let the matrix unit see what this thread has written to shared memory; a barrier comes next.
__device__ __forceinline__ void show_to_matrix_unit() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Wait until at most N of the warpgroup's committed products, the newest, are under way.
template <int N>
__device__ __forceinline__ void wait_products() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
#endif
}

// Wait for all products; sums are read after this call.
template <int tiles>
__device__ __forceinline__ void wait_products(float (&d)[tiles][4]) {
  wait_products<0>();
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#pragma unroll
  for (int n = 0; n < tiles; ++n) asm volatile("" : "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3]));
#endif
}

// Before the first product: registers that were written so far hold sums.
__device__ __forceinline__ void begin_products() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

// After the last of some products, which are waited for together.
__device__ __forceinline__ void commit_products() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

namespace detail {

// Says where an operand begins, and how far apart its blocks and its groups of eight rows are, in units of 16 bytes.
__device__ __forceinline__ unsigned long long operand_at(const void* shared) {
  constexpr unsigned long long kSwizzle128 = 1, kEightRows = 8 * kBlockSide * 2 / 16, kBlocks = kBlock * 2 / 16;
  return kSwizzle128 << 62 | kEightRows << 32 | kBlocks << 16 |
         static_cast<unsigned long long>(__cvta_generic_to_shared(shared)) >> 4;
}

// 16, 32, ... registers, as assembly names them, and as it takes them.
#define SPMARK_D16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define SPMARK_D32 SPMARK_D16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SPMARK_D48 SPMARK_D32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define SPMARK_D64 SPMARK_D48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SPMARK_D128                                                                                                    \
  SPMARK_D64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, "  \
             "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, "      \
             "%103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, "        \
             "%119, %120, %121, %122, %123, %124, %125, %126, %127"
#define SPMARK_4(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define SPMARK_16(i) SPMARK_4(i), SPMARK_4(i + 1), SPMARK_4(i + 2), SPMARK_4(i + 3)
#define SPMARK_32(i) SPMARK_16(i), SPMARK_16(i + 4)
#define SPMARK_64(i) SPMARK_32(i), SPMARK_32(i + 8)
#define SPMARK_128(i) SPMARK_64(i), SPMARK_64(i + 16)
#define SPMARK_48(i) SPMARK_32(i), SPMARK_16(i + 8)

// d += a b, all scaled by one; the right operand has its columns side by side. Behind the registers of d come those of
// the operands.
#define SPMARK_WGMMA(columns, types, registers, operands, inputs, count)                                               \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." types " {" registers "}, " operands             \
               : SPMARK_##count(0)                                                                                     \
               : inputs                                                                                                \
               : "memory")
#define SPMARK_OPERANDS(a, b) "%" #a ", %" #b ", 1, 1, 1, 0, 1;"
#define SPMARK_BOTH(a, b) "l"(a), "l"(b)
#define SPMARK_WGMMA_OF(types)                                                                                         \
  if constexpr (tiles == 8)                                                                                            \
    SPMARK_WGMMA(64, types, SPMARK_D32, SPMARK_OPERANDS(32, 33), SPMARK_BOTH(a, b), 32);                               \
  else if constexpr (tiles == 12)                                                                                      \
    SPMARK_WGMMA(96, types, SPMARK_D48, SPMARK_OPERANDS(48, 49), SPMARK_BOTH(a, b), 48);                               \
  else if constexpr (tiles == 16)                                                                                      \
    SPMARK_WGMMA(128, types, SPMARK_D64, SPMARK_OPERANDS(64, 65), SPMARK_BOTH(a, b), 64);                              \
  else                                                                                                                 \
    SPMARK_WGMMA(256, types, SPMARK_D128, SPMARK_OPERANDS(128, 129), SPMARK_BOTH(a, b), 128)

template <typename T, int tiles>
__device__ __forceinline__ void wgmma(float (&d)[tiles][4], unsigned long long a, unsigned long long b) {
  if constexpr (kIsBfloat<T>) {
    SPMARK_WGMMA_OF("bf16.bf16");
  } else {
    SPMARK_WGMMA_OF("f16.f16");
  }
}

__device__ __forceinline__ void wgmma(float (&d)[16][4], const unsigned (&a)[4], unsigned long long b) {
#define SPMARK_ALL "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
  SPMARK_WGMMA(128, "f16.f16", SPMARK_D64, "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;", SPMARK_ALL, 64);
#undef SPMARK_ALL
}

#undef SPMARK_BOTH
#undef SPMARK_OPERANDS
#undef SPMARK_WGMMA_OF
#undef SPMARK_WGMMA
#undef SPMARK_48
#undef SPMARK_128
#undef SPMARK_64
#undef SPMARK_32
#undef SPMARK_16
#undef SPMARK_4
#undef SPMARK_D128
#undef SPMARK_D64
#undef SPMARK_D48
#undef SPMARK_D32
#undef SPMARK_D16

}  // namespace detail

#endif

// d += columns k ... k + 15 of `a`, a block, times rows k ... k + 15 of `b`, a block for each 64 columns, one behind
// the other. d[n] has this lane's sums of columns 8 n ... 8 n + 7 as in mma.cuh; each warp has sixteen rows. T is half
// or bfloat16. The unit may be at work until wait_products.
template <typename T, int tiles>
__device__ __forceinline__ void multiply_blocks(float (&d)[tiles][4], const T* a, const T* b, int k) {
  static_assert(tiles == 8 || tiles == 12 || tiles == 16 || tiles == 32, "64, 96, 128 or 256 columns");
#ifdef SPMARK_HOST
  const int lane = threadIdx.x % kWarpSize, row = threadIdx.x / kWarpSize % 4 * 16 + lane / 4;
  for (int n = 0; n < tiles; ++n)
    for (int i = 0; i < 4; ++i) {
      const int from = row + i / 2 * 8, column = n * 8 + lane % 4 * 2 + i % 2;
      const T* const block = b + column / kBlockSide * kBlock;
      double sum = d[n][i];
      for (int p = k; p < k + 16; ++p)
        sum += static_cast<double>(to_float(a[in_block(from, p) + p % 8])) *
               static_cast<double>(to_float(block[in_block(p, column % kBlockSide) + column % 8]));
      d[n][i] = static_cast<float>(sum);
    }
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
  detail::wgmma<T>(d, detail::operand_at(a + k), detail::operand_at(b + k * kBlockSide));
#else
  __trap();  // no other architecture has it
#endif
}

// The same for 128 columns, where each warp has its sixteen rows of `a` in registers, as mma.cuh has them. These may
// not change until wait_products.
__device__ __forceinline__ void multiply_blocks(float (&d)[16][4], const unsigned (&a)[4], const half* b, int k) {
#ifdef SPMARK_HOST
  const int lane = threadIdx.x % kWarpSize, first = k + lane % 4 * 2;
  for (int n = 0; n < 16; ++n) {
    const int column = n * 8 + lane / 4;
    const auto bits = [&](int row) -> unsigned {
      return b[column / kBlockSide * kBlock + in_block(row, column % kBlockSide) + column % 8].bits;
    };
    mma_m16n8k16<half>(d[n], a, {bits(first) | bits(first + 1) << 16, bits(first + 8) | bits(first + 9) << 16});
  }
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
  detail::wgmma(d, a, detail::operand_at(b + k * kBlockSide));
#else
  __trap();
#endif
}

}  // namespace spmark
