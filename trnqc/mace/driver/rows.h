// The rows of weights of a range of atoms. A row serves the two edges of a pair of atoms that are both in the range,
// because their lengths are equal, and otherwise one edge.
//
// Rows are computed in blocks. The edges of a block are listed by receiver, so that their sum for a receiver is a run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "structure.h"

namespace trnqc::mace {

// Largest number of atoms of a tile. The pairs of atoms of two tiles follow one another, so that the edges of a block of rows
// have few receivers.
constexpr int64_t TILE = 7;

class Rows {
 public:
  // The number of rows; the edge whose length each row has, repeated up to a whole block.
  Integers row_count = {0}, row_edges;
  // The edges of the blocks one after another, and the row of each in its block.
  Integers edge_list, edge_rows;
  // Where the edges of one receiver begin in the list, and where the runs of each block begin.
  Integers runs, block_runs;

  // Set the rows of the atoms from `first` up to, but not including, `last`. Pairs are used if `paired`.
  void set(const Structure& s, int64_t first, int64_t last, bool paired, int64_t block) {
    others_.assign(s.starts[last] - s.starts[first], -1);
    if (paired) find_pairs(s, first, last);
    sort_rows(s, first, last);
    row_count[0] = static_cast<int64_t>(row_edges.size());
    edge_list.clear();
    edge_rows.clear();
    runs.assign(1, 0);
    block_runs.assign(1, 0);
    counts_.assign(last - first, 0);
    for (int64_t begin = 0; begin < row_count[0]; begin += block)
      list_edges(s, first, begin, std::min(begin + block, row_count[0]));
    while (row_edges.size() % block) row_edges.push_back(row_edges.back());
  }

 private:
  // Find the other edge of each pair of atoms in the range.
  void find_pairs(const Structure& s, int64_t first, int64_t last) {
    const int64_t offset = s.starts[first];
    for (int64_t node = first; node < last; ++node)
      for (int64_t edge = s.starts[node]; edge < s.starts[node + 1]; ++edge) {
        const int64_t sender = s.senders[edge];
        if (others_[edge - offset] >= 0 || sender < node || sender >= last) continue;
        const int64_t other = reverse(s, node, edge, offset);
        if (other < 0) continue;
        others_[edge - offset] = other;
        others_[other - offset] = edge;
      }
  }

  // The edge in the other direction, or -1 if there is none with exactly the opposite vector.
  int64_t reverse(const Structure& s, int64_t node, int64_t edge, int64_t offset) const {
    const int64_t sender = s.senders[edge];
    const double* v = s.vectors.data() + 3 * edge;
    for (int64_t other = s.starts[sender]; other < s.starts[sender + 1]; ++other) {
      if (s.senders[other] != node || other == edge || others_[other - offset] >= 0) continue;
      const double* w = s.vectors.data() + 3 * other;
      if (w[0] == -v[0] && w[1] == -v[1] && w[2] == -v[2]) return other;
    }
    return -1;
  }

  // Sort the rows: pairs by the tiles of their atoms, then the other edges by receiver.
  void sort_rows(const Structure& s, int64_t first, int64_t last) {
    const int64_t offset = s.starts[first];
    int64_t first_tile = 0, tiles = 0;
    if (first < last) {
      const auto [lowest, highest] = std::minmax_element(s.tiles.begin() + first, s.tiles.begin() + last);
      first_tile = *lowest;
      tiles = *highest + 1 - first_tile;
    }
    // Call work(edge, key) for the first edge of each row. Keys are below tiles^2 for pairs.
    const auto for_rows = [&](const auto& work) {
      for (int64_t edge = offset; edge < s.starts[last]; ++edge) {
        const int64_t other = others_[edge - offset];
        if (other >= 0 && other < edge) continue;
        const int64_t a = s.tiles[s.receivers[edge]] - first_tile, b = other < 0 ? 0 : s.tiles[s.senders[edge]] - first_tile;
        work(edge, other < 0 ? tiles * tiles : std::min(a, b) * tiles + std::max(a, b));
      }
    };
    places_.assign(tiles * tiles + 2, 0);
    for_rows([&](int64_t, int64_t key) { ++places_[key + 1]; });
    for (size_t key = 1; key < places_.size(); ++key) places_[key] += places_[key - 1];
    row_edges.resize(places_.back());
    for_rows([&](int64_t edge, int64_t key) { row_edges[places_[key]++] = edge; });
  }

  // List the edges of the rows from `begin` up to, but not including, `end`.
  void list_edges(const Structure& s, int64_t first, int64_t begin, int64_t end) {
    const int64_t offset = s.starts[first];
    Integers& count = counts_;
    users_.clear();
    receivers_.clear();
    for (int64_t row = begin; row < end; ++row) {
      const int64_t edge = row_edges[row], other = others_[edge - offset];
      for (const int64_t user : {edge, other}) {
        if (user < 0) continue;
        users_.emplace_back(user, row - begin);
        const int64_t node = s.receivers[user] - first;
        if (!count[node]++) receivers_.push_back(node);
      }
    }
    int64_t place = runs.back();
    for (const int64_t node : receivers_) {
      runs.push_back(place + count[node]);
      count[node] = std::exchange(place, runs.back());
    }
    edge_list.resize(place);
    edge_rows.resize(place);
    for (const auto& [edge, row] : users_) {
      const int64_t at = count[s.receivers[edge] - first]++;
      edge_list[at] = edge;
      edge_rows[at] = row;
    }
    for (const int64_t node : receivers_) count[node] = 0;
    block_runs.push_back(static_cast<int64_t>(runs.size()) - 1);
  }

  // The other edge of the pair of each edge of the range, or -1.
  Integers others_;
  // Where the rows of each pair of tiles are.
  Integers places_;
  // The edges of a block with their rows, their receivers, and the numbers or places of the edges of a receiver.
  std::vector<std::pair<int64_t, int64_t>> users_;
  Integers receivers_, counts_;
};

}  // namespace trnqc::mace
