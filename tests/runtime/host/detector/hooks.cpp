// Sees every load and store of a kernel: host_races.py makes the compiler call AddressSanitizer for each, and the
// linker leads these calls here (--wrap).
#include <cstddef>
#include <cstdint>

namespace simt::detector {
// An access of the kernel's code, after AddressSanitizer has let it pass; defined in races.cpp.
void instrumented(const void* address, size_t bytes, bool writes, const void* place);
}  // namespace simt::detector

#define SIMT_HOOK(name, bytes, writes)                                                                                 \
  extern "C" void __real___asan_##name(uintptr_t address);                                                             \
  extern "C" void __wrap___asan_##name(uintptr_t address) {                                                            \
    __real___asan_##name(address);                                                                                     \
    simt::detector::instrumented(reinterpret_cast<const void*>(address), bytes, writes, __builtin_return_address(0));  \
  }
#define SIMT_HOOK_SIZED(name, writes)                                                                                  \
  extern "C" void __real___asan_##name(uintptr_t address, size_t bytes);                                               \
  extern "C" void __wrap___asan_##name(uintptr_t address, size_t bytes) {                                              \
    __real___asan_##name(address, bytes);                                                                              \
    simt::detector::instrumented(reinterpret_cast<const void*>(address), bytes, writes, __builtin_return_address(0));  \
  }
SIMT_HOOK(load2, 2, false)
SIMT_HOOK(load4, 4, false)
SIMT_HOOK(load8, 8, false)
SIMT_HOOK(load16, 16, false)
SIMT_HOOK_SIZED(loadN, false)
SIMT_HOOK(store2, 2, true)
SIMT_HOOK(store4, 4, true)
SIMT_HOOK(store8, 8, true)
SIMT_HOOK(store16, 16, true)
SIMT_HOOK_SIZED(storeN, true)
