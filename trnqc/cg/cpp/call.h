// Calls of generated kernels by address, and the directions of a tensor product that they compute.
#pragma once

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace trnqc {

// A direction as in trnqc/cg/programs/directions.py. The last letter of an operand's name is its kind.
struct Direction {
  std::string name;
  std::vector<std::string> reads, writes;
  // The operator that returns the gradients; empty where there is none.
  std::string gradient;
};

inline const std::array<Direction, 3> DIRECTIONS = {{
    {"forward", {"x", "y", "w"}, {"z"}, "backward"},
    {"backward", {"x", "y", "w", "gz"}, {"gx", "gy", "gw"}, "double_backward"},
    {"double_backward", {"x", "y", "w", "gz", "ggx", "ggy", "ggw"}, {"gx", "gy", "gw", "ggz"}, ""},
}};

inline const Direction& direction_of(const std::string& name) {
  for (const Direction& direction : DIRECTIONS)
    if (direction.name == name) return direction;
  throw std::invalid_argument("trnqc: unknown direction " + name);
}

// A kernel of a convolution: its name, whether it goes by sender, and its operands among those read and written.
struct Pass {
  std::string name;
  bool by_sender;
  std::vector<size_t> operands;
};

inline std::vector<Pass> passes_of(const std::string& direction) {
  if (direction == "forward") return {{"conv_forward", false, {0, 1, 2, 3}}};
  if (direction == "backward") return {{"conv_backward", true, {0, 1, 2, 3, 4, 5, 6}}};
  return {{"conv_double_outputs", false, {0, 1, 2, 4, 5, 6, 10}},
          {"conv_double_inputs", true, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}};
}

// Partial sums of gradients of shared weights in a batch. Their number does not depend on that of threads.
constexpr int64_t BATCH_SHARES = 16;
// Smallest numbers of rows of a batch, and of edges of a graph, that a thread computes at a time.
constexpr int64_t LEAST_ROWS = 64, LEAST_EDGES = 32;
// Largest number of parameters of a kernel besides its range of groups.
constexpr size_t MOST_PARAMETERS = 32;

using Parameters = std::vector<intptr_t>;

// Call a kernel. All its parameters are addresses or int64, which have one calling convention on 64-bit machines.
template <size_t... N>
void call_kernel(void* address, const intptr_t* p, int64_t begin, int64_t end, std::index_sequence<N...>) {
  reinterpret_cast<void (*)(decltype(p[N] + 0)..., int64_t, int64_t)>(address)(p[N]..., begin, end);
}

template <size_t Count = 1>
void call_kernel(void* address, const Parameters& p, int64_t begin, int64_t end) {
  if (p.size() == Count) {
    call_kernel(address, p.data(), begin, end, std::make_index_sequence<Count>());
  } else if constexpr (Count < MOST_PARAMETERS) {
    call_kernel<Count + 1>(address, p, begin, end);
  } else {
    throw std::invalid_argument("trnqc: a kernel has more parameters than " + std::to_string(MOST_PARAMETERS));
  }
}

// Call the kernel of a batch for a range of shares, of which there are BATCH_SHARES.
inline void call_by_shares(void* address, Parameters parameters, int64_t rows, int64_t begin, int64_t end) {
  parameters.push_back(0);
  for (int64_t share = begin; share < end; ++share) {
    parameters.back() = share;
    call_kernel(address, parameters, rows * share / BATCH_SHARES, rows * (share + 1) / BATCH_SHARES);
  }
}

}  // namespace trnqc
