// Kernels that Python names, and loops on the threads of XLA.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace trnqc {

namespace ffi = xla::ffi;

// Return the addresses of the kernels in "file function" pairs, one on each line.
inline std::vector<void*> kernels_in(const std::string& text) {
  static std::mutex mutex;
  static std::map<std::string, std::vector<void*>> loaded;
  std::lock_guard<std::mutex> guard(mutex);
  auto& addresses = loaded[text];
  if (!addresses.empty()) return addresses;
  std::istringstream lines(text);
  std::string file, function;
  std::vector<void*> fresh;
  while (std::getline(lines, file, '\t') && std::getline(lines, function)) {
    void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library)
      throw std::runtime_error("trnqc: cannot load a kernel; trace the function again: " + std::string(dlerror()));
    void* address = dlsym(library, function.c_str());
    if (!address) throw std::runtime_error("trnqc: " + file + " has no function " + function);
    fresh.push_back(address);
  }
  return addresses = fresh;
}

// The parts of a call, which threads take one after another. It outlives the call if a thread starts late.
struct Parts {
  std::atomic<int64_t> next{0};
  int64_t count, left;
  std::function<void(int64_t)> part;
  std::mutex mutex;
  std::condition_variable done;

  void work() {
    int64_t n, finished = 0;
    while ((n = next++) < count) {
      part(n);
      ++finished;
    }
    std::lock_guard<std::mutex> guard(mutex);
    if ((left -= finished) == 0) done.notify_all();
  }
};

// Call function(begin, end) for ranges of 0 .. size on the threads of the pool and on this one.
inline void in_parallel(ffi::ThreadPool& pool, int64_t size, int64_t most_parts,
                        const std::function<void(int64_t, int64_t)>& function) {
  const int64_t threads = std::max<int64_t>(1, pool.num_threads());
  auto parts = std::make_shared<Parts>();
  parts->count = parts->left = std::max<int64_t>(1, std::min({size, most_parts, threads == 1 ? 1 : 4 * threads}));
  parts->part = [=, &function](int64_t n) { function(size * n / parts->count, size * (n + 1) / parts->count); };
  for (int64_t n = 1; n < std::min(threads, parts->count); ++n) pool.Schedule([parts] { parts->work(); });
  parts->work();
  std::unique_lock<std::mutex> lock(parts->mutex);
  parts->done.wait(lock, [&] { return parts->left == 0; });
  // The parts refer to themselves.
  parts->part = nullptr;
}

}  // namespace trnqc
