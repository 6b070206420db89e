// Switching between stacks: a dozen instructions on x86-64, ucontext elsewhere (a system call per switch).
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__) && !defined(SIMT_UCONTEXT)

// Saves the callee-saved registers and the stack pointer, and goes on from another saved stack pointer.
extern "C" void simt_switch(void** from, void* to);
asm(R"(
.text
.p2align 4
.globl simt_switch
.type simt_switch, @function
simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size simt_switch, .-simt_switch
)");

namespace simt {

class Context {
public:
  // Makes the first switch to this context call `entry`, which must not return, on the given stack.
  void prepare(char* stack, size_t bytes, void (*entry)()) {
    auto* top = reinterpret_cast<void**>(stack + bytes);
    *--top = nullptr;  // where entry would return to: the end of every backtrace
    *--top = reinterpret_cast<void*>(entry);
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    stack_pointer_ = top;
  }
  void switch_to(Context& other) { simt_switch(&stack_pointer_, other.stack_pointer_); }

private:
  void* stack_pointer_ = nullptr;
};

}  // namespace simt

#else

#include <ucontext.h>

namespace simt {

class Context {
public:
  void prepare(char* stack, size_t bytes, void (*entry)()) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack;
    context_.uc_stack.ss_size = bytes;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
  }
  void switch_to(Context& other) { swapcontext(&context_, &other.context_); }

private:
  ucontext_t context_;
};

}  // namespace simt

#endif
