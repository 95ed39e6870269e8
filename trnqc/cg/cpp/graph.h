// Edges of a graph in the order of the kernels, as in trnqc/cg/problem/graph.py: sorted by receiver and by sender, with
// the nodes divided into shares of about equal cost.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace trnqc {

using Integers = std::vector<int64_t>;

// Number of shares of nodes. It does not depend on the number of threads, so neither do the sums over shares.
constexpr int64_t GRAPH_SHARES = 64;
// Number of recent graphs that are kept. A model builds a few in each step and uses them in every layer.
constexpr size_t KEPT_GRAPHS = 8;

struct Order {
  // Number of each edge in the list, first edge of each node, node at the other end, first node of each share.
  Integers edges, starts, far, shares;

  Order(const Integers& near, const Integers& other, int64_t nodes)
      : edges(near.size()), starts(nodes + 1, 0), far(near.size()) {
    for (const int64_t node : near) ++starts[node + 1];
    for (int64_t node = 0; node < nodes; ++node) starts[node + 1] += starts[node];
    Integers next(starts.begin(), starts.end() - 1);
    for (size_t edge = 0; edge < near.size(); ++edge) {
      const int64_t place = next[near[edge]]++;
      edges[place] = static_cast<int64_t>(edge);
      far[place] = other[edge];
    }
    divide(nodes);
  }

  int64_t n_shares() const { return static_cast<int64_t>(shares.size()) - 1; }

 private:
  // Each node and each edge costs one unit.
  void divide(int64_t nodes) {
    const int64_t count = std::min(GRAPH_SHARES, nodes), cost = starts[nodes] + nodes;
    Integers cuts{0};
    for (int64_t n = 1; n < count; ++n) {
      const double wanted = n * (static_cast<double>(cost) / static_cast<double>(count));
      int64_t low = 0, high = nodes;
      while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (static_cast<double>(starts[middle] + middle) < wanted) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      cuts.push_back(low);
    }
    cuts.push_back(nodes);
    std::unique_copy(cuts.begin(), cuts.end(), std::back_inserter(shares));
  }
};

struct Graph {
  Integers rows, cols;
  int64_t nodes;
  Order by_receiver, by_sender;

  Graph(Integers receivers, Integers senders, int64_t count)
      : rows(std::move(receivers)),
        cols(std::move(senders)),
        nodes(count),
        by_receiver(rows, cols, nodes),
        by_sender(cols, rows, nodes) {}

  template <typename Index>
  bool is(const Index* receivers, const Index* senders, int64_t edges, int64_t count) const {
    return count == nodes && edges == static_cast<int64_t>(rows.size()) &&
           std::equal(rows.begin(), rows.end(), receivers) && std::equal(cols.begin(), cols.end(), senders);
  }
};

// Return the numbers of an index array, which must be nodes of the graph.
template <typename Index>
Integers checked_nodes(const std::string& name, const Index* index, int64_t edges, int64_t nodes) {
  Integers numbers(index, index + edges);
  for (int64_t edge = 0; edge < edges; ++edge)
    if (numbers[edge] < 0 || numbers[edge] >= nodes)
      throw std::runtime_error(name + ": expected nodes 0 .. " + std::to_string(nodes - 1) + ", found " +
                               std::to_string(numbers[edge]) + " at edge " + std::to_string(edge));
  return numbers;
}

// Return the graph of these edges, which is kept for later calls.
template <typename Index>
std::shared_ptr<const Graph> graph_of(const Index* rows, const Index* cols, int64_t edges, int64_t nodes) {
  static std::mutex mutex;
  static std::vector<std::shared_ptr<const Graph>> kept;
  {
    std::lock_guard<std::mutex> guard(mutex);
    for (const auto& graph : kept)
      if (graph->is(rows, cols, edges, nodes)) return graph;
  }
  auto graph = std::make_shared<const Graph>(checked_nodes("rows", rows, edges, nodes),
                                             checked_nodes("cols", cols, edges, nodes), nodes);
  std::lock_guard<std::mutex> guard(mutex);
  if (kept.size() == KEPT_GRAPHS) kept.erase(kept.begin());
  kept.push_back(graph);
  return graph;
}

}  // namespace trnqc
