// Threads that share the parts of one step after another. They live for one evaluation.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <system_error>
#include <thread>
#include <vector>

#include "failure.h"

namespace trnqc::mace {

class Team {
 public:
  explicit Team(int threads) {
    try {
      for (int n = 1; n < threads; ++n) helpers_.emplace_back([this] { help(); });
    } catch (const std::system_error& error) {
      stop();
      throw Failure(TRNQC_MACE_OTHER, std::string("cannot start threads: ") + error.what());
    }
  }
  Team(const Team&) = delete;
  ~Team() { stop(); }

  // Call work(0), ..., work(parts - 1) once each. A free thread takes the next part.
  void run(int64_t parts, const std::function<void(int64_t)>& work) {
    if (helpers_.empty() || parts < 2) {
      for (int64_t part = 0; part < parts; ++part) work(part);
      return;
    }
    work_ = &work;
    parts_ = parts;
    next_ = 0;
    busy_ = static_cast<int>(helpers_.size());
    ++round_;
    round_.notify_all();
    take();
    for (int busy = busy_; busy; busy = busy_) busy_.wait(busy);
  }

 private:
  void take() {
    for (int64_t part = next_++; part < parts_; part = next_++) (*work_)(part);
  }

  void help() {
    // Every thread takes part in every round, so it cannot miss one.
    for (int seen = 0;; ++seen) {
      round_.wait(seen);
      if (stopped_) return;
      take();
      if (!--busy_) busy_.notify_one();
    }
  }

  void stop() {
    stopped_ = true;
    ++round_;
    round_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
    helpers_.clear();
  }

  std::vector<std::thread> helpers_;
  const std::function<void(int64_t)>* work_ = nullptr;
  int64_t parts_ = 0;
  std::atomic<int64_t> next_{0};
  std::atomic<int> busy_{0}, round_{0};
  std::atomic<bool> stopped_{false};
};

}  // namespace trnqc::mace
