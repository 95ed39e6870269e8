// Symmetric contractions in C++: nodes in groups of one element, operands in the layout of the kernels, and their calls.
// The kernels and their layouts are those of trnqc/cg/cpu/contraction.py.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "call.h"

namespace trnqc {

// Largest number of nodes of a group, as in trnqc/cg/cpu/contraction_engine.py.
constexpr int64_t GROUP_NODES = 16;

// The dimensions of a contraction: components of x and of the results, terms, channels, and channels of a vector.
struct Contraction {
  int64_t x, b, terms, channels, lanes;

  int64_t blocks() const { return (channels + lanes - 1) / lanes; }
  int64_t padded() const { return blocks() * lanes; }
};

// Nodes, sorted by element, in ranges of one element. Range g has the nodes nodes[starts[g]] .. nodes[starts[g + 1] - 1].
struct Groups {
  std::vector<int64_t> starts, elements, nodes;

  // Ranges have at most `size` nodes; 0 is for no limit.
  template <typename Index>
  Groups(const Index* numbers, int64_t count, int64_t known, int64_t size) : nodes(count) {
    for (int64_t node = 0; node < count; ++node)
      if (numbers[node] < 0 || numbers[node] >= known)
        throw std::runtime_error("elements: expected numbers from 0 to " + std::to_string(known - 1) + ", found " +
                                 std::to_string(numbers[node]));
    std::iota(nodes.begin(), nodes.end(), int64_t(0));
    std::stable_sort(nodes.begin(), nodes.end(), [=](int64_t a, int64_t b) { return numbers[a] < numbers[b]; });
    for (int64_t at = 0; at < count; ++at) {
      const int64_t element = numbers[nodes[at]];
      if (starts.empty() || element != elements.back() || (size && at - starts.back() == size)) {
        starts.push_back(at);
        elements.push_back(element);
      }
    }
    starts.push_back(count);
  }

  int64_t count() const { return static_cast<int64_t>(elements.size()); }
};

// Copy rows of numbers of `size` bytes, and fill the rest of each row with zeros, or leave it out.
inline void copy_rows(const void* from, int64_t from_length, void* to, int64_t to_length, int64_t rows, int64_t size) {
  const int64_t shared = size * std::min(from_length, to_length);
  const char* source = static_cast<const char*>(from);
  char* target = static_cast<char*>(to);
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(target, source, shared);
    std::memset(target + shared, 0, size * to_length - shared);
    source += size * from_length;
    target += size * to_length;
  }
}

// Copy coefficients between [elements, terms, channels] and the kernels' [elements, blocks, terms, lanes].
inline void copy_coefficients(const Contraction& shape, void* plain, void* packed, int64_t elements, int64_t size,
                              bool pack) {
  for (int64_t row = 0; row < elements * shape.blocks() * shape.terms; ++row) {
    const int64_t term = row % shape.terms, block = row / shape.terms % shape.blocks();
    const int64_t element = row / shape.terms / shape.blocks(), first = block * shape.lanes;
    const int64_t count = std::min(shape.lanes, shape.channels - first);
    char* own = static_cast<char*>(plain) + size * ((element * shape.terms + term) * shape.channels + first);
    char* vector = static_cast<char*>(packed) + size * row * shape.lanes;
    std::memcpy(pack ? vector : own, pack ? own : vector, size * count);
    if (pack) std::memset(vector + size * count, 0, size * (shape.lanes - count));
  }
}

// Call the kernel of a contraction. `operands` are c, x, directions, gb, out and gc as far as the kernel has them,
// `in_parallel` calls function(begin, end) for ranges of a number.
template <typename InParallel>
void contract(void* kernel, const Contraction& shape, bool by_block, const Groups& groups, const Parameters& operands,
              const InParallel& in_parallel) {
  Parameters parameters{shape.blocks()};
  for (const auto* numbers : {&groups.starts, &groups.elements, &groups.nodes})
    parameters.push_back(reinterpret_cast<intptr_t>(numbers->data()));
  parameters.insert(parameters.end(), operands.begin(), operands.end());
  in_parallel(groups.count() * (by_block ? shape.blocks() : 1),
              [&](int64_t begin, int64_t end) { call_kernel(kernel, parameters, begin, end); });
}

}  // namespace trnqc
