// SDDMM over the non-zeros in CSR order, a few at a time or in runs with the row of X in registers. Deterministic: no
// atomics.
//
// Two stages as in PRedS (Yu et al., "Exploiting Online Locality and Reduction Parallelism for Sampled Dense Matrix
// Multiplication on GPUs", ICCD 2021) and its generalisation in SparseTIR (Ye et al., ASPLOS 2023, section 4.2.2):
// lanes add up their own products over J, then each other's.

#include <spmark/half.cuh>

#include "sddmm_dots.cuh"

using namespace spmark;

// D[p] = sum_j X[row of p, j] Y[indices[p], j], times values[p] where `scaled` is not 0.
//
// A group of `lanes` threads owns `batch` consecutive non-zeros; a block holds threads / lanes groups.
//   rows      the row of each of the nnz non-zeros
//   indices   nnz columns, in CSR order
//   values    nnz values, likewise; not read unless scaled
//   x         num_rows x width, row-major; aligned to vector elements, and so is width
//   y         K x width, likewise
//   out       nnz results
// Consecutive non-zeros mostly share their row, so the repeated reads of X hit the first-level cache; `batch`
// independent rows of Y in flight hide the latency of reads that miss.
template <typename T, int vector, int lanes, int batch, int threads>
__global__ void __launch_bounds__(threads)
    sddmm_csr(int nnz, int width, int scaled, const int* __restrict__ rows, const int* __restrict__ indices,
              const T* __restrict__ values, const T* __restrict__ x, const T* __restrict__ y, T* __restrict__ out) {
  static_assert(threads % lanes == 0 && 32 % lanes == 0, "a group is a part of one warp");
  static_assert(sizeof(T) * vector <= 16, "a vector is loaded at once");
  static_assert((threads == 128 && batch > 1) || (vector <= 4 && threads <= 8 * lanes),
                "blocks of other sizes, and groups of one non-zero, are those of SparseTIR's published space");
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * (threads / lanes) + threadIdx.x / lanes) * batch;
  batch_dots<vector, lanes, batch>(first, nnz, width, rows, indices, x, y, [&](int64_t p, float sum) {
    if (scaled) sum *= to_float(values[p]);
    out[p] = from_float<T>(sum);
  });
}

// D[p] = sum_j X[row of p, j] Y[indices[p], j], times values[p] where `scaled` is not 0.
//
// A row of X is loaded once for the neighbouring non-zeros that share it, while several rows of Y are on their way. A
// group of `lanes` threads owns a run of consecutive non-zeros and takes `batch` of them at once; a block holds
// threads / lanes runs. Vector i of lane l has the columns from (i lanes + l) vector on, so that neither `run` nor
// `batch`, `vectors` or `parts` changes the order of a sum.
//   vector    elements of a load
//   vectors   loads of a row side by side in a lane
//   lanes     threads of a group
//   batch     rows of Y that are on their way together
//   parts     turns that a batch takes, each over `vectors` loads: fewer registers wait for Y, while all of X stays
//   whole     the parts cover J exactly, so that the compiler knows J; else lanes past J hold zeros
//   early     rows of X that begin within a batch are loaded with the batch's rows of Y, which costs registers and may
//             pay for short rows; else each row of X is loaded where it is needed
//   columns   J
//   run       non-zeros of a group
//   rows      the row of each of the nnz non-zeros
//   indices   nnz columns, in CSR order
//   values    nnz values, likewise; not read unless scaled
//   x         num_rows x J, row-major; aligned to vector elements, and so is J
//   y         K x J, likewise
//   out       nnz results
// Columns, rows and values of the next batch are fetched before this batch is computed.
template <typename T, int vector, int vectors, int lanes, int batch, int parts, bool whole, bool early, int threads>
__global__ void __launch_bounds__(threads)
    sddmm_runs(int nnz, int columns, int run, int scaled, const int* __restrict__ rows, const int* __restrict__ indices,
               const T* __restrict__ values, const T* __restrict__ x, const T* __restrict__ y, T* __restrict__ out) {
  static_assert(threads % 32 == 0 && 32 % lanes == 0, "a group is a part of one warp");
  static_assert(sizeof(T) * vector <= 16, "a vector is loaded at once");
  static_assert(batch <= lanes, "a lane fetches one non-zero of a batch");
  static_assert(vectors * batch * vector <= 64 && (batch > 2 || vectors == 4), "Y is held while it comes");
  static_assert(parts * vectors * vector <= 32, "a row of X stays in registers");
  static_assert(parts == 1 || (vectors > 1 && vectors * batch <= 8 && lanes >= 16), "parts are for a wide J");
  static_assert(!early || vectors == 1, "rows of X are held beside those of Y");
  static_assert(batch < 8 || (vectors == 1 && lanes == 8), "large batches pay with one load of a row alone");
  static_assert(!early || (whole && parts == 1), "few kernels have a tail or parts");
  static_assert(!whole || sizeof(T) * vector == 16, "narrow loads are for a J that wide ones do not divide");
  static_assert(whole || (parts == 1 && batch == 4 && (lanes == 8 || lanes == 32)), "few kernels have a tail");
  constexpr int kStep = lanes * vector;   // columns from one vector of a lane to its next
  constexpr int kOwners = lanes / batch;  // lanes that fetch the same non-zero of a batch, and end with its sum
  const int width = whole ? parts * vectors * kStep : columns;
  const int lane = threadIdx.x % lanes, group_in_warp = lane_id() / lanes;
  const int mine = lane / kOwners;  // which non-zero of every batch the lane fetches and ends with
  // The value that the owner of non-zero b of a batch has fetched.
  const int first_lane = group_in_warp * lanes;
  const auto of_batch = [&](int fetched, int b) { return __shfl_sync(kFullMask, fetched, first_lane + b * kOwners); };
  // Position of the lane's non-zero in a batch; past the end the last one, which is computed and not written.
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * (threads / lanes) + threadIdx.x / lanes) * run;
  const auto position = [&](int done) {
    const int64_t p = first + done + mine;
    return static_cast<int>(p < nnz ? p : nnz - 1);
  };
  // Vector i of the lane in a row of X or Y; zeros past J.
  const auto vector_of = [&](const T* matrix, int row, int i) {
    if (!whole && i * kStep + lane * vector >= width) return Packed<T, vector>{};
    return load_packed<vector>(row_of(matrix + i * kStep + lane * vector, row, width * unsigned(sizeof(T))));
  };

  // The warp leaves together, and all its groups go through a whole run, so that every shuffle has all lanes.
  if (first - static_cast<int64_t>(group_in_warp) * run >= nnz) return;
  int p = position(0);
  int next_row = rows[p], next_column = indices[p];
  T next_value = from_float<T>(1.0f);  // converted when it is needed: a conversion would wait for the load
  if (scaled) next_value = values[p];

  int held = -1;                                  // the row of X in registers
  Vec<float, vector> left[parts * vectors] = {};  // converted once a row and not once a product
#pragma unroll 1
  for (int done = 0; done < run; done += batch) {
    const int row = next_row, column = next_column;
    const T value = next_value;
    if (done + batch < run) {
      p = position(done + batch);
      next_row = rows[p], next_column = indices[p];
      if (scaled) next_value = values[p];
    }

    // A bit for each lane: whether its non-zero begins another row than the non-zero before.
    const int before = __shfl_sync(kFullMask, row, max(lane_id() - kOwners, 0));
    const unsigned begins = __ballot_sync(kFullMask, row != (mine == 0 ? held : before));
    held = of_batch(row, batch - 1);
    const auto begins_row = [&](int b) { return (begins >> (first_lane + b * kOwners) & 1u) != 0; };

    float sum[batch] = {};
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      Packed<T, vector> right[batch][vectors], new_left[early ? batch : 1][vectors];
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        const int row_of_y = of_batch(column, b);
#pragma unroll
        for (int v = 0; v < vectors; ++v) right[b][v] = vector_of(y, row_of_y, part * vectors + v);
        if constexpr (early) {
          const int row_of_x = of_batch(row, b);
#pragma unroll
          for (int v = 0; v < vectors; ++v)
            if (begins_row(b)) new_left[b][v] = vector_of(x, row_of_x, v);
        }
      }

      const auto add_products = [&](bool rows_stay) {
#pragma unroll
        for (int b = 0; b < batch; ++b) {
          const int row_of_x = rows_stay || early ? held : of_batch(row, b);
#pragma unroll
          for (int v = 0; v < vectors; ++v) {
            const int i = part * vectors + v;
            if (!rows_stay && begins_row(b))
              left[i] = unpacked(early ? new_left[early ? b : 0][v] : vector_of(x, row_of_x, i));
          }
#pragma unroll
          for (int v = 0; v < vectors; ++v) sum[b] = dot(left[part * vectors + v], unpacked(right[b][v]), sum[b]);
        }
      };
      // Where all lanes of the warp keep their rows of X, the products need no test for each non-zero. The branch has a
      // second use: without it the compiler moves every load down to its products, so that one row of Y at a time is on
      // its way.
      if (begins == 0)
        add_products(true);
      else
        add_products(false);
    }

    transpose_sum<lanes>(sum, kFullMask);
    const int64_t at = first + done + mine;
    if (lane % kOwners == 0 && done + mine < run && at < nnz) out[at] = from_float<T>(sum[0] * to_float(value));
  }
}
