// Whether this CPU can run the kernels of a folder.
#pragma once

#include <stdexcept>
#include <string>

namespace trnqc {

// Whether this CPU has a feature of trnqc/jit/shipped.py.
inline bool cpu_has(const std::string& feature) {
#if defined(__x86_64__)
  if (feature == "avx") return __builtin_cpu_supports("avx");
  if (feature == "avx2") return __builtin_cpu_supports("avx2");
  if (feature == "fma") return __builtin_cpu_supports("fma");
  if (feature == "bmi2") return __builtin_cpu_supports("bmi2");
  if (feature == "avx512f") return __builtin_cpu_supports("avx512f");
  if (feature == "avx512bw") return __builtin_cpu_supports("avx512bw");
  if (feature == "avx512dq") return __builtin_cpu_supports("avx512dq");
  if (feature == "avx512vl") return __builtin_cpu_supports("avx512vl");
#endif
  throw std::invalid_argument("trnqc: unknown feature of CPUs: " + feature);
}

}  // namespace trnqc
