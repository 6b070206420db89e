// SDDMM over runs of non-zeros in CSR order, with the row of X in registers. Deterministic: no atomics.
//
// A row of X is loaded once for the neighbouring non-zeros that share it, while several rows of Y are on their way. As
// in PRedS (Yu et al., "Exploiting Online Locality and Reduction Parallelism for Sampled Dense Matrix Multiplication on
// GPUs", ICCD 2021), lanes add up their own products over J first, then each other's.

#include <spmark/half.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

#include "row_at.cuh"

using namespace spmark;

// The rows of positions that only grow: looked up once in indptr and followed there, or read from an array.
template <bool searched>
class RowsOfRun {
public:
  __device__ __forceinline__ RowsOfRun(const int* __restrict__ rows, int num_rows, int first) : rows_(rows) {
    if constexpr (searched) {
      row_ = row_at(rows, num_rows, first);
      end_ = rows[row_ + 1];
    }
  }

  // Row of position p, which is at least the last call's.
  __device__ __forceinline__ int at(int p) {
    if constexpr (!searched) return rows_[p];
    while (end_ <= p) end_ = rows_[++row_ + 1];
    return row_;
  }

private:
  const int* __restrict__ rows_;
  int row_ = 0, end_ = 0;  // of indptr: the row of the last position, and where it ends
};

// D[p] = sum_j X[row of p, j] Y[indices[p], j], times values[p] where `scaled` is not 0.
//
// A group of `lanes` threads owns a run of consecutive non-zeros and takes `batch` of them at once; a block holds
// threads / lanes runs. Vector i of lane l has the columns from (i lanes + l) vector on, so that neither `run` nor
// `batch`, `vectors` or `parts` changes the order of a sum.
//   vector    elements of a load
//   vectors   loads of a row side by side in a lane
//   lanes     threads of a group
//   batch     rows of Y that are on their way together
//   at_once   the compiler, told of 4 blocks a multiprocessor, has registers for all loads of a batch at once; else it
//             takes fewer and asks for some rows of Y only when others have come, while more warps take turns
//   parts     J is taken in so many parts of `vectors` loads: fewer registers wait for Y, while all of X stays
//   whole     the parts cover J exactly, which is then known while compiling; else lanes past J hold zeros
//   searched  rows are looked up in indptr, and followed there
//   columns   J
//   run       non-zeros of a group
//   rows      where `searched`: indptr, num_rows + 1 offsets; else the row of each of the nnz non-zeros
//   indices   nnz columns, in CSR order
//   values    nnz values, likewise; not read unless scaled
//   x         num_rows x J, row-major; aligned to vector elements, and so is J
//   y         K x J, likewise
//   out       nnz results
// Columns, rows and values of the next batch are fetched before this batch is computed.
template <typename T, int vector, int vectors, int lanes, int batch, int parts, bool whole, bool searched, bool at_once,
          int threads>
__global__ void __launch_bounds__(threads, at_once ? 4 : 0)
    sddmm_runs(int num_rows, int nnz, int columns, int run, int scaled, const int* __restrict__ rows,
               const int* __restrict__ indices, const T* __restrict__ values, const T* __restrict__ x,
               const T* __restrict__ y, T* __restrict__ out) {
  static_assert(threads % 32 == 0 && 32 % lanes == 0, "a group is a part of one warp");
  static_assert(sizeof(T) * vector <= 16, "a vector is loaded at once");
  static_assert(batch <= lanes, "a lane fetches one non-zero of a batch");
  static_assert(vectors * batch <= 16 && (batch > 2 || vectors == 4), "loads of Y on their way");
  static_assert(parts * vectors * vector <= 32, "a row of X stays in registers");
  static_assert(parts == 1 || (vectors > 1 && vectors * batch <= 8 && lanes >= 16), "parts are for a wide J");
  static_assert(parts == 1 || (at_once && !searched), "few kernels have parts");
  static_assert(!whole || sizeof(T) * vector == 16, "narrow loads are for a J that wide ones do not divide");
  static_assert(whole || (parts == 1 && batch == 4 && (lanes == 8 || lanes == 32)), "few kernels have a tail");
  static_assert(whole || (at_once && !searched), "few kernels have a tail");
  constexpr int kStep = lanes * vector;   // columns from one vector of a lane to its next
  constexpr int kOwners = lanes / batch;  // lanes that fetch the same non-zero of a batch, and end with its sum
  const int width = whole ? parts * vectors * kStep : columns;
  const int lane = threadIdx.x % lanes, first_lane = lane_id() - lane;
  const unsigned group = group_mask<lanes>();

  const int64_t first = (static_cast<int64_t>(blockIdx.x) * (threads / lanes) + threadIdx.x / lanes) * run;
  if (first >= nnz) return;  // the group leaves together; shuffles name the group alone
  const int count = static_cast<int>(nnz - first < run ? nnz - first : run);
  const int mine = lane / kOwners;  // which non-zero of every batch the lane fetches and ends with
  int p = static_cast<int>(first) + min(mine, count - 1);
  RowsOfRun<searched> rows_of_run(rows, num_rows, p);
  int next_row = rows_of_run.at(p), next_column = indices[p];
  float next_factor = scaled ? to_float(values[p]) : 1.0f;

  int held = -1;                                  // the row of X in registers
  Vec<float, vector> left[parts * vectors] = {};  // converted once a row and not once a product
  const auto inside = [&](int i) { return whole || i * kStep + lane * vector < width; };
#pragma unroll 1
  for (int done = 0; done < count; done += batch) {
    const int row = next_row, column = next_column;
    const float factor = next_factor;
    if (done + batch < count) {
      p = static_cast<int>(first) + min(done + batch + mine, count - 1);  // past the end: never written
      next_row = rows_of_run.at(p), next_column = indices[p];
      next_factor = scaled ? to_float(values[p]) : 1.0f;
    }

    float sum[batch] = {};
    int now = held;
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      Packed<T, vector> right[batch][vectors];
#pragma unroll
      for (int b = 0; b < batch; ++b) {  // every load of Y is on its way before the first product
        const int from = shuffle(group, column, first_lane + b * kOwners);
        const T* row_of_y = y + static_cast<int64_t>(from) * width + lane * vector;
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
          const int i = part * vectors + v;
          right[b][v] = inside(i) ? load_packed<vector>(row_of_y + i * kStep) : Packed<T, vector>{};
        }
      }
      now = held;  // each part meets the rows of the batch anew
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        const int wanted = shuffle(group, row, first_lane + b * kOwners);
        const bool other = wanted != now;
        now = wanted;
        const T* row_of_x = x + static_cast<int64_t>(wanted) * width + lane * vector;
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
          const int i = part * vectors + v;
          if (other && inside(i)) left[i] = unpacked(load_packed<vector>(row_of_x + i * kStep));
        }
#pragma unroll
        for (int v = 0; v < vectors; ++v)
          sum[b] = dot(left[part * vectors + v], unpacked(right[b][v]), sum[b]);
      }
    }
    held = now;

    transpose_sum<lanes>(sum);
    if (lane % kOwners == 0 && done + mine < count) out[first + done + mine] = from_float<T>(sum[0] * factor);
  }
}
