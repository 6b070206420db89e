"""CUDA's driver on the host: functions of the host stand for kernels, and what is asked of streams is noted."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

SOURCE = r"""
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
struct Config { unsigned grid[3], block[3], shared; void* stream; void* attributes; unsigned count; };
using Stream = uintptr_t;
static thread_local void* context = nullptr;
static thread_local int mode = 0;
static std::string noted;
static std::map<Stream, uint64_t> captures;
static std::map<void*, std::pair<void*, void (*)(void*)>> objects;
static std::multimap<uint64_t, void*> kept;
static std::set<void*> memory;
static int fails = 0, events = 0;
static void note(const char* what, Stream stream) { noted += what + std::to_string(stream) + " "; }
extern "C" {
int cuDevicePrimaryCtxRetain(void** found, int device) { *found = (void*)(uintptr_t)(device + 1); return 0; }
int cuCtxGetCurrent(void** found) { *found = context; return 0; }
int cuCtxSetCurrent(void* wanted) { context = wanted; return 0; }
int cuEventCreate(void** event, unsigned) { *event = &events; events++; return 0; }
int cuEventDestroy_v2(void*) { events--; return 0; }
int cuEventRecord(void*, Stream stream) { note("mark", stream); return 0; }
int cuStreamWaitEvent(Stream stream, void*, unsigned) { note("wait", stream); return 0; }
int cuStreamCreate(Stream* stream, unsigned) { *stream = 99; return 0; }
int cuStreamDestroy_v2(Stream) { return 0; }
int cuStreamSynchronize(Stream) { return 0; }
int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  if (!captures.empty() && mode != 2) return 900;
  void* made = malloc(bytes);
  memset(made, 0xAB, bytes);
  memory.insert(made);
  *address = (uint64_t)made;
  return 0;
}
int cuMemFree_v2(uint64_t address) { free((void*)address); return memory.erase((void*)address) ? 0 : 1; }
int cuMemsetD8Async(uint64_t address, unsigned char value, size_t bytes, Stream stream) {
  note("clear", stream);
  memset((void*)address, value, bytes);
  return 0;
}
int cuStreamGetCaptureInfo_v2(Stream stream, int* status, uint64_t* id, void** graph, const void**, size_t*) {
  if (stream <= 1) return 906;
  *status = captures.count(stream);
  if (*status) { *id = captures[stream]; *graph = (void*)*id; }
  return 0;
}
int cuThreadExchangeStreamCaptureMode(int* other) { int before = mode; mode = *other; *other = before; return 0; }
int cuUserObjectCreate(void** object, void* held, void (*gone)(void*), unsigned, unsigned) {
  *object = held;
  objects[held] = {held, gone};
  return 0;
}
int cuGraphRetainUserObject(void* graph, void* object, unsigned, unsigned) {
  kept.emplace((uint64_t)graph, object);
  return 0;
}
int cuLaunchKernelEx(const Config* config, void* function, void** parameters, void**) {
  if (!context) return 201;
  if (fails && !--fails) return 1;
  note("run", (Stream)config->stream);
  reinterpret_cast<void (*)(void**)>(function)(parameters);
  return 0;
}
// Kernels. The first takes a count, B and the result; the next two have sums and a counter between them, and the last
// has them before B.
void triple(void** p) {
  const float* b = *static_cast<const float**>(p[1]);
  float* out = *static_cast<float**>(p[2]);
  for (int i = 0; i < *static_cast<int*>(p[0]); i++) out[i] = 3 * b[i];
}
void arrive(void** p) {
  triple(p);
  ++**static_cast<int**>(p[3]);
}
void leave(void** p) {
  const float* sums = *static_cast<const float**>(p[1]);
  float* out = *static_cast<float**>(p[2]);
  int* counter = *static_cast<int**>(p[3]);
  for (int i = 0; i < *static_cast<int*>(p[0]); i++) out[i] = *counter == 1 ? sums[i] : -1;
  *counter = 0;
}
void aside(void** p) {
  float* sums = *static_cast<float**>(p[1]);
  const float* b = *static_cast<const float**>(p[3]);
  float* out = *static_cast<float**>(p[4]);
  for (int i = 0; i < *static_cast<int*>(p[0]); i++) out[i] = sums[i] = 3 * b[i];
  if (**static_cast<int**>(p[2])) *out = -1;
}
const char* fake_noted() { static std::string told; told.swap(noted); noted.clear(); return told.c_str(); }
void fake_capture(Stream stream, uint64_t id) { if (id) captures[stream] = id; else captures.erase(stream); }
void fake_end_graph(uint64_t id) {
  for (auto [at, end] = kept.equal_range(id); at != end; ++at) objects[at->second].second(objects[at->second].first);
  kept.erase(id);
}
void fake_failure(int launches) { fails = launches; }
int fake_memory() { return memory.size(); }
int fake_events() { return events; }
}
"""


class FakeDriver:
    """The driver, loaded under the name of CUDA's, which the extensions find from now on.

    Parameters
    ----------
    folder : Path
        Where it is compiled.
    """

    def __init__(self, folder: Path) -> None:
        made = folder / "libcuda.so.1"
        command = ["g++", "-std=c++20", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-x", "c++", "-", "-o", made]
        subprocess.run(command, input=SOURCE, text=True, check=True)
        self.library = ctypes.CDLL(str(made), mode=ctypes.RTLD_GLOBAL)
        self.library.fake_noted.restype = ctypes.c_char_p

    def kernel(self, name: str) -> int:
        """Give the address of a kernel."""
        return ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value or 0

    def noted(self) -> list[str]:
        """Give what was asked of streams since the last question: ``run7`` is a launch on stream 7."""
        found: bytes = self.library.fake_noted()
        return found.decode().split()

    def capture(self, stream: int, graph: int) -> None:
        """Let a stream capture a graph, or with 0 end that."""
        self.library.fake_capture(ctypes.c_size_t(stream), ctypes.c_uint64(graph))

    def end_graph(self, graph: int) -> None:
        """Let a graph be destroyed."""
        self.library.fake_end_graph(ctypes.c_uint64(graph))

    def fail(self, launch: int) -> None:
        """Let the launch after so many, counted from 1, fail."""
        self.library.fake_failure(launch)

    @property
    def held(self) -> tuple[int, int]:
        """Pieces of memory and events that are not given back."""
        return self.library.fake_memory(), self.library.fake_events()


def on_host(array: Any) -> Any:
    """Give an array of NumPy as one of CuPy, which needs no GPU while nobody computes with it.

    The memory is the array's own, at an address that 16 divides.
    """
    import cupy
    import numpy as np

    room = np.empty(array.nbytes + 16, np.uint8)
    start = -room.ctypes.data % 16
    room[start : start + array.nbytes] = array.reshape(-1).view(np.uint8)
    memory = cupy.cuda.UnownedMemory(room.ctypes.data + start, array.nbytes, room, 0)
    return cupy.ndarray(array.shape, array.dtype, cupy.cuda.MemoryPointer(memory, 0))


def from_host(array: Any) -> Any:
    """Give a copy of such an array as NumPy's."""
    import numpy as np

    kind = ctypes.c_uint8 * array.nbytes
    return np.frombuffer(kind.from_address(array.data.ptr), array.dtype).reshape(array.shape).copy()
