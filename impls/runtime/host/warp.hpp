// CUDA's warp collectives over simt::collective. Included by simt.hpp. Stricter than the hardware: every lane of the
// mask must arrive at the same line, lanes that exited or that the block does not have included.
#pragma once

namespace simt::detail {

// A lane's value, the lane that it reads, and what it gets.
template <typename T>
struct Shuffle {
  T value;
  int source;
  T result;
};

template <typename T>
void shuffle(void* const* lanes, size_t count) {
  for (size_t lane = 0; lane < count; ++lane) {
    auto* request = static_cast<Shuffle<T>*>(lanes[lane]);
    if (request == nullptr) continue;
    const auto* from = static_cast<const Shuffle<T>*>(lanes[request->source]);
    if (from != nullptr) {
      request->result = from->value;
    } else {
      // Undefined on the device: a pattern that is NaN as half, float or (all ones) double, so that its use shows.
      __builtin_memset(&request->result, 0xff, sizeof(T));
    }
  }
}

// The value of another lane; of this one where the other is not inside of what may be read.
template <typename T>
T exchange(const char* name, unsigned mask, T value, int source, bool inside, Site site) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "a shuffle moves 2, 4 or 8 bytes");
  Shuffle<T> request{value, inside ? source : lane(), value};
  collective(name, shuffle<T>, mask, &request, site);
  return request.result;
}

// First lane of the segment of `width` lanes that the running lane is in.
inline int segment(int width) {
  if (width < 1 || width > 32 || (width & (width - 1)) != 0) {
    fault("the width of a shuffle must be a power of two up to 32, got %d", width);
  }
  return lane() & ~(width - 1);
}

}  // namespace simt::detail

inline void __syncwarp(unsigned mask = 0xffffffffu, SIMT_SITE) {
  simt::collective("__syncwarp", nullptr, mask, nullptr, site);
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, SIMT_SITE) {
  const int first = simt::detail::segment(width);
  return simt::detail::exchange("__shfl_sync", mask, value, first + (source & (width - 1)), true, site);
}

template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, SIMT_SITE) {
  const int source = simt::lane() - static_cast<int>(delta);
  return simt::detail::exchange("__shfl_up_sync", mask, value, source, source >= simt::detail::segment(width), site);
}

template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, SIMT_SITE) {
  const int source = simt::lane() + static_cast<int>(delta);
  const bool inside = source < simt::detail::segment(width) + width;
  return simt::detail::exchange("__shfl_down_sync", mask, value, source, inside, site);
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, SIMT_SITE) {
  const int source = simt::lane() ^ lane_mask;
  // As in PTX, a lane may read from its own and from lower segments, not from higher ones.
  const bool inside = source < simt::detail::segment(width) + width;
  return simt::detail::exchange("__shfl_xor_sync", mask, value, source, inside, site);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, SIMT_SITE) {
  unsigned bits = static_cast<unsigned>(predicate != 0) << simt::lane();
  simt::collective("__ballot_sync", simt::detail::join_bits, mask, &bits, site);
  return bits;
}

inline int __any_sync(unsigned mask, int predicate, SIMT_SITE) { return __ballot_sync(mask, predicate, site) != 0; }
inline int __all_sync(unsigned mask, int predicate, SIMT_SITE) { return __ballot_sync(mask, predicate, site) == mask; }
