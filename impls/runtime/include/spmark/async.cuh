// Copies from global to shared memory that run beside the arithmetic (cp.async). A copy belongs to the group that its
// thread commits next; data may be read after wait_async and, by other threads, a barrier after that.
#pragma once

namespace spmark {

// Start copying 4, 8 or 16 bytes, both addresses aligned to them; where not valid, zeros are written and global memory
// is not read (its pointer may then point anywhere). In the host ring the target holds NaN patterns until the wait.
template <int Bytes>
__device__ __forceinline__ void copy_async(void* shared, const void* global, bool valid = true) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async copies 4, 8 or 16 bytes");
#ifdef SPMARK_HOST
  simt::copy_async(shared, global, Bytes, valid);
#else
  const unsigned target = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const int read = valid ? Bytes : 0;
  if constexpr (Bytes == 16) {
    // 16 bytes go past L1: data staged in shared memory needs no second copy there.
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(global), "r"(read) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(target), "l"(global), "n"(Bytes), "r"(read)
                 : "memory");
  }
#endif
}

// Close this thread's group of copies.
__device__ __forceinline__ void commit_async() {
#ifdef SPMARK_HOST
  simt::commit_async();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Wait until at most N of this thread's committed groups, the newest, are still under way.
template <int N>
__device__ __forceinline__ void wait_async() {
  static_assert(N >= 0, "a number of groups");
#ifdef SPMARK_HOST
  simt::wait_async(N);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

}  // namespace spmark
