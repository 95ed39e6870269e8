// A stand-in for <hip/hip_runtime.h> that runs the threads of a block as threads of the host, for tests/gen/test_hip.py.
#pragma once
#include <atomic>
#include <barrier>
#include <cmath>
#include <thread>
#include <vector>

#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)

struct Index {
    int x;
};
static thread_local Index threadIdx;
static Index blockIdx;
static std::barrier<> *meeting;

static void __syncthreads() { meeting->arrive_and_wait(); }

template <class T> static T __shfl_xor(T x, int n, int) {
    static T box[1024];
    box[threadIdx.x] = x;
    __syncthreads();
    const T other = box[threadIdx.x ^ n];
    __syncthreads();
    return other;
}

template <class T> static T atomicAdd(T *place, T value) { return std::atomic_ref<T>(*place).fetch_add(value); }

template <class Kernel> static void run_blocks(int blocks, int lanes, Kernel kernel) {
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
        std::barrier<> all(lanes);
        meeting = &all;
        std::vector<std::thread> threads;
        for (int lane = 0; lane < lanes; lane++)
            threads.emplace_back([&, lane] { threadIdx.x = lane, kernel(); });
        for (auto &thread : threads) thread.join();
    }
}
