// CUDA's warp collectives over simt::collective. Included by simt.hpp. Stricter than the hardware: every lane of the
// mask must arrive at the same line, lanes that exited or that the block does not have included.
#pragma once

namespace simt::detail {

// A lane's request to a shuffle, and its answer.
template <typename T>
struct Shuffle {
  T value;
  int source;  // lane to read
  T result;
};

template <typename T>
void shuffle(void* const* lanes, unsigned mask) {
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1u) == 0) continue;
    auto* request = static_cast<Shuffle<T>*>(lanes[lane]);
    if ((mask >> request->source & 1u) != 0) {
      request->result = static_cast<Shuffle<T>*>(lanes[request->source])->value;
    } else {
      // Undefined on the device: a pattern that is NaN as half, float or (all ones) double, so that its use shows.
      __builtin_memset(&request->result, 0xff, sizeof(T));
    }
  }
}

template <typename T>
T exchange(const char* name, unsigned mask, T value, int source, Site site) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "a shuffle moves 2, 4 or 8 bytes");
  Shuffle<T> request{value, source, value};
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

struct Vote {
  unsigned value;
  unsigned result;
};

template <typename Fold>
void vote(void* const* lanes, unsigned mask, unsigned start, Fold fold_one) {
  unsigned result = start;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1u) != 0) result = fold_one(result, lane, static_cast<Vote*>(lanes[lane])->value);
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1u) != 0) static_cast<Vote*>(lanes[lane])->result = result;
  }
}

inline void ballot(void* const* lanes, unsigned mask) {
  vote(lanes, mask, 0u, [](unsigned seen, unsigned lane, unsigned value) { return seen | (value != 0) << lane; });
}

// A lane's request to a comparison or a reduction over a whole mask.
template <typename T>
struct Value {
  T value;
  T result;
};

template <typename T>
struct Match {
  T value;
  unsigned result;
};

template <typename T>
void match_any(void* const* lanes, unsigned mask) {
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1u) == 0) continue;
    auto* request = static_cast<Match<T>*>(lanes[lane]);
    request->result = 0;
    for (int other = 0; other < 32; ++other) {
      const bool same = (mask >> other & 1u) != 0 && static_cast<Match<T>*>(lanes[other])->value == request->value;
      request->result |= static_cast<unsigned>(same) << other;
    }
  }
}

template <typename T, typename Fold>
void reduce(void* const* lanes, unsigned mask, Fold fold_one) {
  T result{};
  bool first = true;
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1u) == 0) continue;
    const T value = static_cast<Value<T>*>(lanes[lane])->value;
    result = first ? value : fold_one(result, value);
    first = false;
  }
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1u) != 0) static_cast<Value<T>*>(lanes[lane])->result = result;
  }
}

// Sums wrap as they do on the device.
template <typename T>
void reduce_add(void* const* lanes, unsigned mask) {
  reduce<T>(lanes, mask, [](T a, T b) { return static_cast<T>(static_cast<unsigned>(a) + static_cast<unsigned>(b)); });
}
template <typename T>
void reduce_min(void* const* lanes, unsigned mask) {
  reduce<T>(lanes, mask, [](T a, T b) { return min(a, b); });
}
template <typename T>
void reduce_max(void* const* lanes, unsigned mask) {
  reduce<T>(lanes, mask, [](T a, T b) { return max(a, b); });
}

template <typename T>
T reduced(const char* name, Combine combine, unsigned mask, T value, Site site) {
  static_assert(sizeof(T) == 4 && static_cast<T>(0.5) == 0, "the device reduces int and unsigned");
  Value<T> request{value, value};
  collective(name, combine, mask, &request, site);
  return request.result;
}

}  // namespace simt::detail

inline void __syncwarp(unsigned mask = 0xffffffffu, SIMT_SITE) {
  simt::collective("__syncwarp", simt::detail::nothing, mask, nullptr, site, true);
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, SIMT_SITE) {
  const int first = simt::detail::segment(width);
  return simt::detail::exchange("__shfl_sync", mask, value, first + (source & (width - 1)), site);
}

template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, SIMT_SITE) {
  const int source = simt::lane() - static_cast<int>(delta);
  const bool inside = source >= simt::detail::segment(width);
  return simt::detail::exchange("__shfl_up_sync", mask, value, inside ? source : simt::lane(), site);
}

template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, SIMT_SITE) {
  const int source = simt::lane() + static_cast<int>(delta);
  const bool inside = source < simt::detail::segment(width) + width;
  return simt::detail::exchange("__shfl_down_sync", mask, value, inside ? source : simt::lane(), site);
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, SIMT_SITE) {
  const int source = simt::lane() ^ lane_mask;
  // As in PTX, a lane may read from its own and from lower segments, not from higher ones.
  const bool inside = source < simt::detail::segment(width) + width;
  return simt::detail::exchange("__shfl_xor_sync", mask, value, inside ? source : simt::lane(), site);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, SIMT_SITE) {
  simt::detail::Vote request{static_cast<unsigned>(predicate != 0), 0};
  simt::collective("__ballot_sync", simt::detail::ballot, mask, &request, site);
  return request.result;
}

inline int __any_sync(unsigned mask, int predicate, SIMT_SITE) { return __ballot_sync(mask, predicate, site) != 0; }
inline int __all_sync(unsigned mask, int predicate, SIMT_SITE) { return __ballot_sync(mask, predicate, site) == mask; }

template <typename T>
unsigned __match_any_sync(unsigned mask, T value, SIMT_SITE) {
  simt::detail::Match<T> request{value, 0};
  simt::collective("__match_any_sync", simt::detail::match_any<T>, mask, &request, site);
  return request.result;
}

template <typename T>
T __reduce_add_sync(unsigned mask, T value, SIMT_SITE) {
  return simt::detail::reduced("__reduce_add_sync", simt::detail::reduce_add<T>, mask, value, site);
}
template <typename T>
T __reduce_min_sync(unsigned mask, T value, SIMT_SITE) {
  return simt::detail::reduced("__reduce_min_sync", simt::detail::reduce_min<T>, mask, value, site);
}
template <typename T>
T __reduce_max_sync(unsigned mask, T value, SIMT_SITE) {
  return simt::detail::reduced("__reduce_max_sync", simt::detail::reduce_max<T>, mask, value, site);
}

// The device does not define either which lanes run together; the one answer that is always right is this lane alone.
inline unsigned __activemask() { return 1u << simt::lane(); }
