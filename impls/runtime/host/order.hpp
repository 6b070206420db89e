// The order in which the ring runs what a GPU runs at once: thread blocks of a grid, warps of a block, lanes of a warp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

namespace simt {

// An order has a number. 0 turns round at every block and barrier; 1 goes up; 2 goes down. From 3 on the number seeds
// orders that are drawn anew at every switch.
class Order {
public:
  explicit Order(uint64_t number) : number_(number), random_(number) {}

  // Whether warps take turns instead of running on to the barrier, and threads leave at fences and atomics as well.
  bool drawn() const { return number_ > kDown; }

  // Whether another warp's turn comes before all lanes of this one have had theirs.
  bool turn_ends() { return drawn() && random_() % 16 == 0; }

  void start_block() {
    reversed_ = block_reversed_;
    block_reversed_ = !block_reversed_;
  }
  void pass_barrier() { reversed_ = !reversed_; }

  // Each of these is valid up to its next call.
  const std::vector<unsigned>& blocks(size_t count) { return made(blocks_, count); }
  const std::vector<unsigned>& warps(size_t count) { return made(warps_, count); }
  const std::vector<unsigned>& lanes(size_t count) { return made(lanes_, count); }

private:
  static constexpr uint64_t kDown = 2;

  const std::vector<unsigned>& made(std::vector<unsigned>& order, size_t count) {
    if (order.size() != count) {
      order.resize(count);
      std::iota(order.begin(), order.end(), 0u);
    }
    if (drawn()) {
      std::shuffle(order.begin(), order.end(), random_);
    } else if (count > 1 && (order[0] > order[1]) != (number_ == kDown || (number_ == 0 && reversed_))) {
      std::reverse(order.begin(), order.end());
    }
    return order;
  }

  uint64_t number_;
  std::mt19937_64 random_;
  std::vector<unsigned> blocks_, warps_, lanes_;
  bool block_reversed_ = false;  // up to the next block's first barrier
  bool reversed_ = false;        // and up to the next barrier of this one
};

}  // namespace simt
