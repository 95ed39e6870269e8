// The words of CUDA C++ that our kernels use, for a C++ compiler of the host. It stands before a kernel's text.
//
// A kernel's text is taken as NVRTC takes it: no standard header is visible, so __CUDACC_RTC__ is defined and the text
// brings its own INFINITY and NAN.
#pragma once
#include <math.h>
#include <stdint.h>
#undef INFINITY
#undef NAN
#define __CUDACC_RTC__

#define EMULATOR_PLAIN __attribute__((no_sanitize("thread", "undefined"), noinline))

struct EmulatorIndex {
    unsigned x;
};

extern "C" {
// The place of the running thread.
extern EmulatorIndex emulator_thread, emulator_block;
// `place` is an address in the kernel by which a report names the line.
void emulator_barrier(int number, const void *place);
// Give 8 bytes to the warp, and take those of the lane whose number differs by the bits of n.
uint64_t emulator_shuffle(uint64_t bits, int n, const void *place);
void emulator_atomic(void *address, int bytes, const void *place);
}

#define __global__ __attribute__((noinline))
#define __device__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __restrict__
// Blocks run one after the other, so that one copy serves all. The section tells where it begins and ends.
#define __shared__ static __attribute__((section("emulator_shared")))
EMULATOR_PLAIN static EmulatorIndex emulator_index_of(const EmulatorIndex &place) { return place; }
#define threadIdx emulator_index_of(emulator_thread)
#define blockIdx emulator_index_of(emulator_block)

// Each barrier of the text has a number. Its address would not do: the compiler may copy the code behind a branch into
// both of its sides, so that the threads of a block wait at several addresses of one barrier.
EMULATOR_PLAIN static void emulator_synchronize(int number) { emulator_barrier(number, __builtin_return_address(0)); }
#define __syncthreads() emulator_synchronize(__COUNTER__)

template <class T> EMULATOR_PLAIN static T __shfl_xor_sync(unsigned, T x, int n) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &x, sizeof x);
    bits = emulator_shuffle(bits, n, __builtin_return_address(0));
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

// Threads only change at barriers and shuffles, so that a plain addition is atomic.
template <class T> EMULATOR_PLAIN static T atomicAdd(T *address, T x) {
    emulator_atomic(address, sizeof x, __builtin_return_address(0));
    T old = *address;
    *address = old + x;
    return old;
}

template <class To, class From> EMULATOR_PLAIN static To emulator_bits(From x) {
    static_assert(sizeof(To) == sizeof(From), "both types have the same size");
    To y;
    __builtin_memcpy(&y, &x, sizeof y);
    return y;
}
#define __double_as_longlong emulator_bits<long long, double>
#define __longlong_as_double emulator_bits<double, long long>
#define __float_as_int emulator_bits<int, float>
#define __int_as_float emulator_bits<float, int>
#define __ffsll __builtin_ffsll

// Fences between additions and loads, asm volatile("" : "+d"(x) : : "memory"), keep nvcc from moving code. Their letters
// name registers of a GPU, and on the host they have nothing to do.
#define asm
#define volatile(...)
