// Memory that keeps its pages between evaluations.
#pragma once

#include <sys/mman.h>

#include <bit>
#include <cstddef>
#include <cstdio>
#include <utility>

#include "failure.h"

namespace trnqc::mace {

// Size in bytes of a page, and of a huge page on x86-64 and AArch64.
constexpr size_t PAGE = 4096, HUGE_PAGE = size_t{1} << 21;

// Memory that begins at a page and holds zeros at first. In huge pages if it is large and the system has them.
class Block {
 public:
  Block() = default;
  Block(Block&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Block& operator=(Block&&) = delete;
  ~Block() { release(); }

  char* data() const { return static_cast<char*>(data_); }

  // Make the block hold so many bytes. What it held is lost if it has to grow.
  void reserve(size_t bytes) {
    if (data_ && bytes <= size_) return;
    release();
    const size_t size = rounded(bytes);
    void* fresh = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) {
      char text[64];
      std::snprintf(text, sizeof text, "cannot allocate %.3f GiB of memory", static_cast<double>(size) / (1 << 30));
      throw Failure(TRNQC_MACE_MEMORY, text);
    }
#ifdef MADV_HUGEPAGE
    if (size >= HUGE_PAGE) madvise(fresh, size, MADV_HUGEPAGE);
#endif
    data_ = fresh;
    size_ = size;
  }

 private:
  // Whole pages, and for large blocks at most an eighth too much, because numbers of edges vary from step to step.
  static size_t rounded(size_t bytes) {
    const size_t page = bytes < HUGE_PAGE ? PAGE : HUGE_PAGE;
    const size_t eighth = std::bit_floor(bytes) / 8, step = eighth > page ? eighth : page;
    return bytes ? (bytes + step - 1) / step * step : PAGE;
  }

  void release() {
    if (data_) munmap(data_, size_);
    data_ = nullptr;
    size_ = 0;
  }

  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace trnqc::mace
