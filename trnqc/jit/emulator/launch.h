// What a launch is told, and what it tells. `launch.py` has the same layout.
#pragma once
#include <stdint.h>

constexpr int REPORTS = 16;

struct EmulatorRecord;

struct EmulatorArray {
    char *begin;
    int64_t bytes;
    EmulatorRecord *records;
};

struct EmulatorLaunch {
    void (*body)(void **);
    void **arguments;
    int64_t blocks;
    int32_t threads;
    // 0 ascending, 1 descending, otherwise a random order of blocks and threads.
    int32_t order;
    char *shared;
    int64_t shared_bytes;
    // The library of the kernel, whose constant tables may be read.
    const char *image;
    int64_t image_bytes;
    EmulatorArray *arrays;
    int32_t array_count;
    // How many reports follow, each with an address in the kernel's library and the bytes of its text.
    int32_t reports;
    const void *places[REPORTS];
    char texts[REPORTS][160];
};
