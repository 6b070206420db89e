// Voxels in a hash table of global memory, and the maps of sparse convolutions that are found in it. Deterministic:
// whichever thread comes first, the table knows the smallest number of each voxel.

#include <spmark/warp.cuh>

using namespace spmark;

using Key = unsigned long long;
constexpr Key kFree = ~0ull;  // of a slot without a voxel; no key has its highest bit
constexpr int kLimit = 1 << 20;

// One word for a voxel. Coordinates at the limit or beyond it have none.
__device__ __forceinline__ Key key_of(int64_t x, int64_t y, int64_t z) {
  const auto near = [](int64_t at) { return -kLimit < at && at < kLimit; };
  if (!near(x) || !near(y) || !near(z)) return kFree;
  return static_cast<Key>(x + kLimit) << 42 | static_cast<Key>(y + kLimit) << 21 | static_cast<Key>(z + kLimit);
}

// The slot that the search for a key begins at: multiplied by 2^64 over the golden ratio, the upper bits are mixed
// best.
__device__ __forceinline__ int first_slot(Key key, int bits) {
  return static_cast<int>(key * 0x9e3779b97f4a7c15ull >> (64 - bits));
}

// Put voxels into the table, and note the slot of each. A thread has a voxel; slots are tried one after the other.
//   bits         the table has 2^bits slots, more than voxels
//   coordinates  (n, 3)
//   keys, first  (2^bits,) kFree, and a number above all; afterwards each voxel's key and its smallest number
//   slots        (n,)
template <int threads>
__global__ void __launch_bounds__(threads)
    insert_voxels(int num_voxels, int bits, const int* __restrict__ coordinates, Key* __restrict__ keys,
                  int* __restrict__ first, int* __restrict__ slots) {
  const int64_t voxel = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (voxel >= num_voxels) return;  // no barrier follows
  const int* const at = coordinates + 3 * voxel;
  const Key key = key_of(at[0], at[1], at[2]);
  int slot = first_slot(key, bits);
  while (true) {
    const Key found = atomicCAS(keys + slot, kFree, key);
    if (found == kFree || found == key) break;
    slot = (slot + 1) & ((1 << bits) - 1);
  }
  atomicMin(first + slot, static_cast<int>(voxel));
  slots[voxel] = slot;
}

// The number of the input at an output's offset, or -1. Offset o of a window of `size` is that of `offsets_of`.
template <int size>
__device__ __forceinline__ int input_at(const int* __restrict__ output, int offset, int stride, int bits,
                                        const Key* __restrict__ keys, const int* __restrict__ first) {
  const auto moved = [&](int axis, int by) { return static_cast<int64_t>(output[axis]) * stride + by - size / 3; };
  const Key key = key_of(moved(0, offset / (size * size)), moved(1, offset / size % size), moved(2, offset % size));
  if (key == kFree) return -1;
  for (int slot = first_slot(key, bits);; slot = (slot + 1) & ((1 << bits) - 1)) {
    const Key found = keys[slot];
    if (found == key) return first[slot];
    if (found == kFree) return -1;
  }
}

// counts[i] = inputs of output i. A warp has an output, a lane one of its offsets.
//   coordinates  (num_outputs, 3)
//   keys, first  table of the inputs, 2^bits slots
template <int size, int threads>
__global__ void __launch_bounds__(threads)
    count_inputs(int num_outputs, int stride, int bits, const int* __restrict__ coordinates,
                 const Key* __restrict__ keys, const int* __restrict__ first, int* __restrict__ counts) {
  static_assert(size * size * size <= 32, "a lane for each offset");
  const int lane = threadIdx.x % kWarpSize;
  const int64_t output = (static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x) / kWarpSize;
  if (output >= num_outputs) return;  // for the whole warp; no barrier follows
  const bool has =
      lane < size * size * size && input_at<size>(coordinates + 3 * output, lane, stride, bits, keys, first) >= 0;
  const unsigned held = __ballot_sync(kFullMask, has);
  if (lane == 0) counts[output] = __popc(held);
}

// The columns of the wide CSR: offset o of output i with input k is column o num_inputs + k of row i.
//   ends     (num_outputs,) end of each output's edges
//   indices  of all edges;  else as above
template <int size, int threads>
__global__ void __launch_bounds__(threads)
    write_inputs(int num_outputs, int num_inputs, int stride, int bits, const int* __restrict__ coordinates,
                 const Key* __restrict__ keys, const int* __restrict__ first, const int* __restrict__ ends,
                 int* __restrict__ indices) {
  const int lane = threadIdx.x % kWarpSize;
  const int64_t output = (static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x) / kWarpSize;
  if (output >= num_outputs) return;  // for the whole warp; no barrier follows
  const int input =
      lane < size * size * size ? input_at<size>(coordinates + 3 * output, lane, stride, bits, keys, first) : -1;
  const unsigned held = __ballot_sync(kFullMask, input >= 0);
  // This lane's edge is followed by those of the lanes above.
  if (input >= 0) indices[ends[output] - __popc(held >> lane)] = lane * num_inputs + input;
}
