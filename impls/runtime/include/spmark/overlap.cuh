// Grids that overlap (programmatic dependent launch): a grid that was launched to overlap with the one before it in its
// stream begins as soon as that one lets it, and waits where it first needs what that one has written. Before sm_90,
// and where a grid was launched plainly, both do nothing. In the host ring a thread that has not waited must touch
// nothing that the grid before has touched.
#pragma once

namespace spmark {

// Let a dependent grid begin once every block of this one has come here or ended.
__device__ __forceinline__ void let_next_grid_begin() {
#if !defined(SPMARK_HOST) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Wait until the grid before has ended and all that it wrote can be seen.
__device__ __forceinline__ void wait_for_previous_grid() {
#if defined(SPMARK_HOST)
  simt::wait_for_previous_grid();
#elif __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace spmark
