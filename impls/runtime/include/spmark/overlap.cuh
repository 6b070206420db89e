// Grids that overlap (programmatic dependent launch). A grid that was launched to overlap begins as soon as the grid
// before it in its stream lets it, and waits where it first needs what that grid has written. Before sm_90, and where a
// grid was launched plainly, both functions do nothing. In the host ring a thread that has not waited must touch
// nothing that the grid before has touched.
#pragma once

namespace spmark {

// Let the next grid begin once every block of this grid has made this call or ended.
__device__ __forceinline__ void let_next_grid_begin() {
#if !defined(SPMARK_HOST) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Wait until the grid before has ended and all of its writes can be seen.
__device__ __forceinline__ void wait_for_previous_grid() {
#if defined(SPMARK_HOST)
  simt::wait_for_previous_grid();
#elif __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace spmark
