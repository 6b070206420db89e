// Switching between stacks. Each switch is announced to AddressSanitizer, which has to know whose stack is in use.
#pragma once

#include <cstddef>
#include <new>

#include <sanitizer/common_interface_defs.h>
#include <ucontext.h>

// AddressSanitizer would clear what it knows of the stack before a jump.
#define SIMT_UNCHECKED __attribute__((noinline, no_sanitize("address")))

namespace simt {

// The thread of the process, or a fiber with a stack of its own.
class Context {
public:
  // Makes the first switch to this context call `entry`, which must not return, on the given stack.
  void prepare(char* stack, size_t bytes, void (*entry)()) {
    stack_ = stack;
    bytes_ = bytes;
    first_ = new (stack) ucontext_t;  // the far end of the stack is free until the first switch
    getcontext(first_);
    first_->uc_stack.ss_sp = stack;
    first_->uc_stack.ss_size = bytes;
    makecontext(first_, entry, 0);
  }

  SIMT_UNCHECKED void switch_to(Context& other) {
    __sanitizer_start_switch_fiber(&fake_stack_, other.stack_, other.bytes_);
    // GCC's own pair of functions keeps what a switch needs, without a system call; swapcontext makes one each time.
    if (__builtin_setjmp(registers_) == 0) resume(other);
    __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
  }

  // An entry calls this first, with the context that the first switch came from.
  static void enter(Context& from) { __sanitizer_finish_switch_fiber(nullptr, &from.stack_, &from.bytes_); }

private:
  [[noreturn]] SIMT_UNCHECKED static void resume(Context& other) {
    const ucontext_t* first = other.first_;
    if (first == nullptr) __builtin_longjmp(other.registers_, 1);
    other.first_ = nullptr;
    setcontext(first);
    __builtin_unreachable();
  }

  const void* stack_ = nullptr;
  size_t bytes_ = 0;
  void* fake_stack_ = nullptr;
  void* registers_[5];
  ucontext_t* first_ = nullptr;  // until the first switch
};

}  // namespace simt
