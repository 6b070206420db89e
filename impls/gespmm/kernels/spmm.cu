// CSR SpMM after GE-SpMM: coalesced row caching and coarsened columns.
//
// Huang, Dai, Wang and Yang, "GE-SpMM: General-Purpose Sparse Matrix-Matrix Multiplication on GPUs for Graph Neural
// Networks", SC 2020, sections 4.1 (coalesced row caching) and 4.2 (coarse-grained warp merging). Deterministic: no atomics.

#include <spmark/half.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

using namespace spmark;

// C[i, j] = sum_k A[i, k] B[k, j].
//
// A group of `lanes` threads owns one row and a tile of lanes * vector * coarsen columns; a block holds threads / lanes rows.
//   indptr   num_rows + 1 offsets; indices, values   nnz columns and values, in CSR order
//   dense    B, num_cols x width, row-major; aligned to vector elements, and so is width
//   out      C, num_rows x width, row-major; written whole, empty rows as zeros
// The group stages `lanes` non-zeros in shared memory with one coalesced load, then every lane walks them, reading `coarsen`
// vectors of B's row: the staged pair is read once for all of them, and consecutive lanes read consecutive columns.
template <typename T, int vector, int lanes, int coarsen, int threads>
__global__ void __launch_bounds__(threads)
    spmm_csr(int num_rows, int width, const int* __restrict__ indptr, const int* __restrict__ indices,
             const T* __restrict__ values, const T* __restrict__ dense, T* __restrict__ out) {
    static_assert(threads % 32 == 0 && 32 % lanes == 0, "a group is a part of one warp");
    static_assert(sizeof(T) * vector <= 16, "a vector is loaded at once");
    constexpr int kRows = threads / lanes;
    constexpr int kStep = lanes * vector;  // columns between two vectors of one lane
    __shared__ int staged_columns[kRows][lanes];
    __shared__ float staged_values[kRows][lanes];

    const int group = threadIdx.x / lanes;
    const int lane = threadIdx.x % lanes;
    const int row = blockIdx.x * kRows + group;
    if (row >= num_rows) return;  // the group leaves together; no barrier of the block follows
    const unsigned members = group_mask<lanes>();

    int column[coarsen];
    bool active[coarsen];
#pragma unroll
    for (int c = 0; c < coarsen; ++c) {
        column[c] = (blockIdx.y * coarsen + c) * kStep + lane * vector;
        active[c] = column[c] < width;
    }
    Vec<float, vector> sum[coarsen] = {};

    const int end = indptr[row + 1];
    for (int start = indptr[row]; start < end; start += lanes) {
        const int count = min(lanes, end - start);
        if (lane < count) {
            staged_columns[group][lane] = indices[start + lane];
            staged_values[group][lane] = to_float(values[start + lane]);
        }
        __syncwarp(members);  // the whole group reads what each lane staged
#pragma unroll 4  // four rows of B in flight hide the latency of reading them
        for (int p = 0; p < count; ++p) {
            const T* source = dense + static_cast<int64_t>(staged_columns[group][p]) * width;
            const float value = staged_values[group][p];
#pragma unroll
            for (int c = 0; c < coarsen; ++c)
                if (active[c]) axpy(sum[c], value, load_read_only<vector>(source + column[c]));
        }
        __syncwarp(members);  // nobody stages over what another lane still reads
    }

    T* target = out + static_cast<int64_t>(row) * width;
#pragma unroll
    for (int c = 0; c < coarsen; ++c)
        if (active[c]) store(target + column[c], round_to<T>(sum[c]));
}
