// The main program of a host executable: reads one launch from standard input, runs it, and writes back the arrays
// that the kernel may write. launch.py holds the other end and the layout of the bytes.
#include "memory.hpp"
#include "scheduler.hpp"
#include "simt.hpp"

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <unistd.h>

namespace {

using simt::fault;

constexpr size_t kAlignment = 256;  // of cudaMalloc
constexpr int kExitStopped = 4;

std::vector<char> read_all(int file) {
  std::vector<char> bytes;
  char chunk[1 << 16];
  for (ssize_t got; (got = read(file, chunk, sizeof(chunk))) > 0;) bytes.insert(bytes.end(), chunk, chunk + got);
  return bytes;
}

void write_all(int file, const void* data, size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = write(file, at, bytes);
    if (put <= 0) fault("the result could not be written");
    at += put;
    bytes -= static_cast<size_t>(put);
  }
}

// Takes the request apart, in order.
class Reader {
public:
  explicit Reader(const std::vector<char>& bytes) : bytes_(bytes) {}

  const char* take(size_t count) {
    if (count > bytes_.size() - at_) fault("the request is cut off at byte %zu", bytes_.size());
    const char* start = bytes_.data() + at_;
    at_ += count;
    return start;
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
  const std::vector<char>& bytes_;
  size_t at_ = 0;
};

struct Argument {
  simt::Parameter parameter;  // of the kernel
  char* data;                 // the value or the buffer
  size_t bytes;
  const char* original;
};

std::string type_name(bool pointer, bool written, char kind, size_t bytes) {
  const std::string value = kind == 'V' ? std::to_string(bytes) + "-byte value" : kind + std::to_string(bytes);
  return pointer ? (written ? "" : "const ") + value + " array" : value;
}

// Reads one argument and checks it against the kernel's signature.
Argument read_argument(Reader& request, size_t position, const simt::Parameter& wanted) {
  const bool array = request.number<uint8_t>() != 0;
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
  const char* original = request.take(bytes);
  void* data = nullptr;
  // Exactly as large as the array, so that the sanitizer sees the first byte after it.
  if (posix_memalign(&data, kAlignment, bytes) != 0) fault("no memory for argument %zu (%zu bytes)", position, bytes);
  memcpy(data, original, bytes);
  if (array) simt::name_region(("argument " + std::to_string(position)).c_str(), data, bytes);
  return {wanted, static_cast<char*>(data), bytes, original};
}

const simt::Instance& find(const std::string& name) {
  std::string known;
  for (size_t i = 0; i < simt::kInstanceCount; ++i) {
    if (name == simt::kInstances[i].name) return simt::kInstances[i];
    known += std::string(i == 0 ? " " : "; ") + simt::kInstances[i].name;
  }
  fault("no kernel is called %s; this executable has%s", name.c_str(), known.c_str());
}

// After a report of AddressSanitizer: what it cannot know.
void on_death() {
  const void* address = __asan_report_present() != 0 ? __asan_get_report_address() : nullptr;
  simt::write_where(stderr, address);
  fflush(stderr);
}

// The launch took too long; the parent asks where it stands.
void on_stop(int) {
  fprintf(stderr, "spmark: stopped while running\n");
  simt::write_where(stderr, nullptr);
  fflush(stderr);
  _exit(kExitStopped);
}

}  // namespace

// UBSan, whose runtime is another library with another death, calls this before it reports.
extern "C" void __ubsan_on_report() { simt::write_where(stderr, nullptr); }

int main() {
  __sanitizer_set_death_callback(on_death);
  signal(SIGTERM, on_stop);
  // A kernel's printf must not come between the bytes of the result.
  const int result = dup(STDOUT_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);

  const std::vector<char> bytes = read_all(STDIN_FILENO);
  Reader request(bytes);
  const simt::Instance& instance = find(request.text());
  uint32_t sizes[6];
  for (uint32_t& size : sizes) size = request.number<uint32_t>();
  const auto shared_bytes = request.number<uint64_t>();
  const auto count = request.number<uint64_t>();
  if (count != instance.count) {
    fault("%s takes %zu arguments, found %zu", instance.name, instance.count, static_cast<size_t>(count));
  }
  std::vector<Argument> arguments;
  for (size_t i = 0; i < count; ++i) arguments.push_back(read_argument(request, i, instance.parameters[i]));
  std::vector<void*> passed;
  for (Argument& argument : arguments) {
    passed.push_back(argument.parameter.pointer ? static_cast<void*>(&argument.data) : argument.data);
  }

  simt::run(
      {&instance, dim3(sizes[0], sizes[1], sizes[2]), dim3(sizes[3], sizes[4], sizes[5]), shared_bytes, passed.data()});

  for (size_t i = 0; i < count; ++i) {
    const Argument& argument = arguments[i];
    if (argument.parameter.pointer && !argument.parameter.written &&
        memcmp(argument.data, argument.original, argument.bytes) != 0) {
      fault("argument %zu is const, and the kernel changed it", i);
    }
  }
  for (const Argument& argument : arguments) {
    const uint8_t written = argument.parameter.written ? 1 : 0;
    write_all(result, &written, 1);
    if (written != 0) write_all(result, argument.data, argument.bytes);
  }
  fflush(stdout);
  _exit(0);  // nothing to tear down, and no leak is looked for
}
