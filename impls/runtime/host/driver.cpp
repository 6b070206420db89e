// The main program of a host executable: reads one launch from standard input, runs it, and writes back the arrays
// that the kernel may write. ring.py holds the other end and the layout of the bytes.
#include "memory.hpp"
#include "scheduler.hpp"
#include "simt.hpp"
#include "watcher.hpp"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

using simt::fault;

constexpr size_t kAlignment = 256;  // cudaMalloc aligns so
constexpr int kExitStopped = 4;
constexpr size_t kGuard = 64 * 1024;  // bytes without access on either side of a mapped argument

enum class Form : uint8_t { kValue, kArray, kMapped };

// Reads the request, in order.
class Request {
public:
  Request() {
    char chunk[1 << 16];
    for (ssize_t got; (got = read(STDIN_FILENO, chunk, sizeof(chunk))) > 0;) bytes_.append(chunk, got);
  }
  const char* take(size_t count) {
    if (count > bytes_.size() - at_) fault("the request is cut off at byte %zu", bytes_.size());
    at_ += count;
    return bytes_.data() + at_ - count;
  }
  template <typename T>
  T number() {
    T value;
    memcpy(&value, take(sizeof(T)), sizeof(T));
    return value;
  }
  std::string text() {
    const auto count = number<uint64_t>();
    return {take(count), count};
  }

private:
  std::string bytes_;
  size_t at_ = 0;
};

struct Argument {
  simt::Parameter parameter;  // of the kernel
  char* data;                 // the value or the buffer
  size_t bytes;
  const char* original;  // null for a mapped file, which cannot be changed
};

std::string type_name(bool pointer, bool written, char kind, size_t bytes) {
  const std::string value = kind == 'V' ? std::to_string(bytes) + "-byte value" : kind + std::to_string(bytes);
  return pointer ? (written ? "" : "const ") + value + " array" : value;
}

// Copies the array to a buffer of exactly its bytes, so that the sanitizer sees an access to the first byte after it.
char* copied(const char* original, size_t position, size_t bytes) {
  void* data = nullptr;
  if (posix_memalign(&data, kAlignment, bytes) != 0) fault("no memory for argument %zu (%zu bytes)", position, bytes);
  return static_cast<char*>(memcpy(data, original, bytes));
}

// Maps an array that may be larger than memory: the system loads only the pages that the kernel reads.
char* mapped(const std::string& path, size_t offset, size_t position, size_t bytes) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const size_t pages = (offset + bytes + kGuard - 1) / kGuard * kGuard;
  char* space = static_cast<char*>(
      mmap(nullptr, pages + 2 * kGuard, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (file < 0 || space == MAP_FAILED ||
      mmap(space + kGuard, offset + bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, 0) == MAP_FAILED) {
    fault("argument %zu: %s cannot be mapped (%zu bytes): %s", position, path.c_str(), bytes, strerror(errno));
  }
  close(file);
  return space + kGuard + offset;
}

// Reads one argument and checks it against the kernel's signature.
Argument read_argument(Request& request, size_t position, const simt::Parameter& wanted) {
  const auto form = request.number<Form>();
  const bool array = form != Form::kValue;
  const char kind = request.number<char>();
  const auto item_bytes = request.number<uint64_t>();
  const auto bytes = request.number<uint64_t>();
  const bool any_kind = wanted.kind == 'V' || kind == 'V';
  const bool fits = any_kind ? bytes % wanted.bytes == 0 : kind == wanted.kind && item_bytes == wanted.bytes;
  if (array != wanted.pointer || !fits) {
    fault("argument %zu: the kernel takes %s, found %s", position,
          type_name(wanted.pointer, wanted.written, wanted.kind, wanted.bytes).c_str(),
          type_name(array, true, kind, item_bytes).c_str());
  }
  Argument made{wanted, nullptr, bytes, nullptr};
  if (form == Form::kMapped) {
    if (wanted.written) fault("argument %zu is a mapped file, and the kernel does not take it as const", position);
    const std::string path = request.text();
    made.data = mapped(path, request.number<uint64_t>(), position, bytes);
  } else {
    made.original = request.take(bytes);
    made.data = copied(made.original, position, bytes);
  }
  if (array) {
    simt::name_region(("argument " + std::to_string(position)).c_str(), made.data, bytes);
    simt::watcher->argument(made.data, bytes, wanted.written);
  }
  return made;
}

const simt::Instance& find(const std::string& name) {
  std::string known;
  for (size_t i = 0; i < simt::kInstanceCount; ++i) {
    if (name == simt::kInstances[i].name) return simt::kInstances[i];
    known += std::string(i == 0 ? " " : "; ") + simt::kInstances[i].name;
  }
  fault("no kernel is called %s; this executable has%s", name.c_str(), known.c_str());
}

// Adds what AddressSanitizer cannot know to its report: kernel, thread block, thread and region.
void on_death() { simt::write_where(stderr, __asan_report_present() != 0 ? __asan_get_report_address() : nullptr); }

// The launch took too long; the parent asks where it stands.
void on_stop(int) {
  fprintf(stderr, "spmark: stopped while running\n");
  simt::write_where(stderr, nullptr);
  _exit(kExitStopped);
}

}  // namespace

// UBSan's runtime is a library of its own: it does not run on_death, but calls this function before it reports.
extern "C" void __ubsan_on_report() { simt::write_where(stderr, nullptr); }

int main() {
  __sanitizer_set_death_callback(on_death);
  signal(SIGTERM, on_stop);
  // The output of a kernel's printf must not mix with the bytes of the result.
  FILE* const result = fdopen(dup(STDOUT_FILENO), "w");
  dup2(STDERR_FILENO, STDOUT_FILENO);

  Request request;
  const simt::Instance& instance = find(request.text());
  uint32_t sizes[6];
  for (uint32_t& size : sizes) size = request.number<uint32_t>();
  const auto shared_bytes = request.number<uint64_t>();
  const auto count = request.number<uint64_t>();
  if (count != instance.count) fault("%s takes %zu arguments, found %zu", instance.name, instance.count, count);
  std::vector<Argument> arguments;
  for (size_t i = 0; i < count; ++i) arguments.push_back(read_argument(request, i, instance.parameters[i]));
  std::vector<void*> passed;
  for (Argument& argument : arguments) {
    passed.push_back(argument.parameter.pointer ? static_cast<void*>(&argument.data) : argument.data);
  }

  const char* order = getenv("SPMARK_HOST_ORDER");
  simt::run({&instance, dim3(sizes[0], sizes[1], sizes[2]), dim3(sizes[3], sizes[4], sizes[5]), shared_bytes,
             passed.data(), order == nullptr ? 0 : strtoull(order, nullptr, 10)});

  for (size_t i = 0; i < count; ++i) {
    const Argument& argument = arguments[i];
    const bool written = argument.parameter.written;
    fputc(written, result);
    if (written) {
      fwrite(argument.data, 1, argument.bytes, result);
    } else if (argument.parameter.pointer && argument.original != nullptr &&
               memcmp(argument.data, argument.original, argument.bytes) != 0) {
      fault("argument %zu is const, and the kernel changed it", i);
    }
  }
  if (fflush(result) != 0 || ferror(result) != 0) fault("the result could not be written");
  fflush(stdout);
  _exit(0);  // nothing needs tearing down, and leaks are not searched
}
