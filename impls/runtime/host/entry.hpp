// The table of a host executable's kernels, which compile.py appends to a source and driver.cpp reads. A kernel's
// argument types come from its own signature.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace simt {

// NumPy's dtype.kind of a type: i, u, f or b; V for all others, of which only the size is known.
template <typename T>
inline constexpr char kind_of = std::is_same_v<T, bool>       ? 'b'
                                : std::is_floating_point_v<T> ? 'f'
                                : !std::is_integral_v<T>      ? 'V'
                                : std::is_signed_v<T>         ? 'i'
                                                              : 'u';

struct Parameter {
  bool pointer;
  bool written;  // a pointer to non-const
  char kind;     // of the value, or of the elements behind the pointer
  size_t bytes;  // of one value or element
};

struct Instance {
  const char* name;
  const Parameter* parameters;
  size_t count;
  void (*call)(void* const* arguments);  // each points to the value (for a pointer: to the pointer) to pass
};

template <typename T>
constexpr Parameter describe() {
  using Value = std::remove_pointer_t<T>;
  constexpr bool pointer = std::is_pointer_v<T>;
  return {pointer, pointer && !std::is_const_v<Value>, kind_of<std::remove_cv_t<Value>>, sizeof(Value)};
}

template <auto Kernel>
struct Bind;

template <typename... Arguments, void (*Kernel)(Arguments...)>
struct Bind<Kernel> {
  // One more than the kernel has: a kernel may have no parameter, and an array needs an element.
  static constexpr Parameter parameters[sizeof...(Arguments) + 1] = {describe<std::remove_cv_t<Arguments>>()..., {}};

  template <size_t... Index>
  static void call_with(void* const* arguments, std::index_sequence<Index...>) {
    Kernel(*static_cast<std::remove_cv_t<Arguments>*>(arguments[Index])...);
  }
  static void call([[maybe_unused]] void* const* arguments) {
    call_with(arguments, std::index_sequence_for<Arguments...>());
  }
  static constexpr Instance instance(const char* name) { return {name, parameters, sizeof...(Arguments), call}; }
};

// Defined at the end of the compiled source.
extern const Instance kInstances[];
extern const size_t kInstanceCount;

}  // namespace simt
