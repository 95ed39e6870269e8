// A structure in the order of the kernels: atoms by range and element, copies behind them, edges by receiver.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "failure.h"
#include "partition.h"

namespace trnqc::mace {

// What the order depends on besides the structure.
struct Elements {
  // Number of each atomic number in the model.
  std::unordered_map<int32_t, int64_t> places;
  double cutoff;
  // Largest number of atoms of a block, which have one element.
  int64_t block;

  std::string names() const {
    std::vector<int32_t> numbers;
    for (const auto& [number, place] : places) numbers.push_back(number);
    std::sort(numbers.begin(), numbers.end());
    std::string text;
    for (const int32_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
    return text;
  }
};

class Structure {
 public:
  // Row of each atom and copy, and the element of each row.
  Integers row_of, elements;
  // Edges of the rows: first edge of each receiver, sender and receiver, number in the caller's list, vector.
  Integers starts, senders, receivers, pairs;
  std::vector<double> vectors;
  // Element, first atom and number of atoms of each block; first atoms, and elements, of blocks; the numbers of atoms.
  Integers blocks, block_starts, block_elements, atoms;
  // First atoms of shares with about equal numbers of edges, their first ranges, and the first blocks of ranges.
  Integers shares, share_ranges, range_blocks;
  // The tile of each row of an atom. Tiles contain neighbours, and those of a range have consecutive numbers.
  Integers tiles;

  int64_t receiving() const { return static_cast<int64_t>(atoms.size()); }
  int64_t nodes() const { return static_cast<int64_t>(elements.size()); }
  int64_t edges() const { return static_cast<int64_t>(senders.size()); }
  // Number of atoms of the largest range.
  int64_t largest_range() const {
    int64_t most = 0;
    for (size_t n = 0; n + 1 < range_blocks.size(); ++n)
      most = std::max(most, block_starts[range_blocks[n + 1]] - block_starts[range_blocks[n]]);
    return most;
  }

  // Sort a structure. Ranges and tiles have at most so many atoms.
  void set(const trnqc_mace_structure& given, const Elements& model, int64_t threads, int64_t range, int64_t tile) {
    check(given);
    const Integers element_of = elements_of(given, model);
    PairList list = pairs_of(given, model.cutoff, std::move(receivers));
    const Partition parts(given, list, threads, range, tile);
    sort_atoms(given, parts, element_of, model.block);
    sort_edges(given, parts, list);
    receivers = std::move(list.pairs);
    for (int64_t row = 0; row < given.atoms; ++row)
      std::fill(receivers.begin() + starts[row], receivers.begin() + starts[row + 1], row);
  }

 private:
  [[noreturn]] static void fail(const std::string& message) { throw Failure(TRNQC_MACE_INPUT, message); }

  static void check(const trnqc_mace_structure& s) {
    if (s.atoms < 0 || s.copies < 0 || s.pairs < 0) fail("expected numbers of atoms, copies and pairs from 0 on");
    if ((s.atoms + s.copies && !s.numbers) || (s.pairs && !(s.receivers && s.senders && s.vectors)))
      fail("expected arrays of atomic numbers, receivers, senders and vectors, found NULL");
  }

  // The element of each atom and copy.
  static Integers elements_of(const trnqc_mace_structure& given, const Elements& model) {
    const int64_t total = given.atoms + given.copies;
    Integers element_of(total), missing;
    for (int64_t n = 0; n < total; ++n) {
      const auto place = model.places.find(given.numbers[n]);
      if (place == model.places.end()) {
        missing.push_back(given.numbers[n]);
      } else {
        element_of[n] = place->second;
      }
    }
    if (!missing.empty()) {
      std::sort(missing.begin(), missing.end());
      missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
      std::string text;
      for (const int64_t number : missing) text += (text.empty() ? "" : ", ") + std::to_string(number);
      fail("numbers: the model has the elements " + model.names() + "; found [" + text + "]");
    }
    return element_of;
  }

  // The pairs of each atom that are closer than the cutoff distance, in the memory of an old array.
  static PairList pairs_of(const trnqc_mace_structure& given, double cutoff, Integers memory) {
    PairList list{Integers(given.atoms + 1, 0), std::move(memory)};
    std::vector<bool> near(given.pairs);
    for (int64_t pair = 0; pair < given.pairs; ++pair) {
      const int64_t i = given.receivers[pair], j = given.senders[pair];
      if (i < 0 || i >= given.atoms || j < 0 || j >= given.atoms + given.copies)
        fail("pair " + std::to_string(pair) + ": expected a receiver below " + std::to_string(given.atoms) +
             " and a sender below " + std::to_string(given.atoms + given.copies) + ", found " + std::to_string(i) +
             " and " + std::to_string(j));
      const double *v = given.vectors + 3 * pair, square = v[0] * v[0] + v[1] * v[1] + v[2] * v[2];
      if (!std::isfinite(square))
        fail("vectors must be finite numbers; found NaN or infinity in that of atoms " + std::to_string(j) + " and " +
             std::to_string(i) + " (from 0)");
      if (square == 0)
        fail("atoms " + std::to_string(j) + " and " + std::to_string(i) + " (from 0) are at the same position");
      near[pair] = square < cutoff * cutoff;
      if (near[pair]) ++list.starts[i + 1];
    }
    for (int64_t atom = 0; atom < given.atoms; ++atom) list.starts[atom + 1] += list.starts[atom];
    Integers next(list.starts.begin(), list.starts.end() - 1);
    list.pairs.resize(list.starts.back());
    for (int64_t pair = 0; pair < given.pairs; ++pair)
      if (near[pair]) list.pairs[next[given.receivers[pair]]++] = pair;
    return list;
  }

  // Sort the atoms of each range by element, and divide them into blocks.
  void sort_atoms(const trnqc_mace_structure& given, const Partition& parts, const Integers& element_of, int64_t largest) {
    Integers order = parts.atoms;
    row_of.resize(given.atoms + given.copies);
    elements.resize(given.atoms + given.copies);
    for (Integers* each : {&blocks, &block_elements, &block_starts}) each->clear();
    range_blocks.assign(1, 0);
    for (size_t range = 0; range + 1 < parts.ranges.size(); ++range) {
      const auto begin = order.begin() + parts.ranges[range], end = order.begin() + parts.ranges[range + 1];
      std::sort(begin, end, [&](int64_t a, int64_t b) {
        return element_of[a] != element_of[b] ? element_of[a] < element_of[b] : a < b;
      });
      for (auto first = begin, after = begin; first < end; first = after) {
        while (after < end && element_of[*after] == element_of[*first]) ++after;
        add_blocks(element_of[*first], first - order.begin(), after - order.begin(), largest);
      }
      range_blocks.push_back(static_cast<int64_t>(block_elements.size()));
    }
    block_starts.push_back(given.atoms);
    for (int64_t row = 0; row < given.atoms + given.copies; ++row) {
      const int64_t n = row < given.atoms ? order[row] : row;
      row_of[n] = row;
      elements[row] = element_of[n];
    }
    atoms.resize(given.atoms);
    for (int64_t n = 0; n < given.atoms; ++n) atoms[n] = n;
    tiles.resize(given.atoms);
    for (size_t tile = 0, n = 0; tile < parts.tiles.size(); ++tile)
      for (; static_cast<int64_t>(n) < parts.tiles[tile]; ++n) tiles[row_of[parts.atoms[n]]] = static_cast<int64_t>(tile);
    share_ranges = parts.shares;
    shares.clear();
    for (const int64_t range : share_ranges) shares.push_back(parts.ranges[range]);
  }

  // Divide atoms of one element into blocks.
  void add_blocks(int64_t element, int64_t first, int64_t end, int64_t largest) {
    const int64_t size = end - first, parts = (size + largest - 1) / largest;
    for (int64_t n = 0; n < parts; ++n) {
      const int64_t begin = first + size * n / parts;
      blocks.insert(blocks.end(), {element, begin, first + size * (n + 1) / parts - begin});
      block_elements.push_back(element);
      block_starts.push_back(begin);
    }
  }

  void sort_edges(const trnqc_mace_structure& given, const Partition& parts, const PairList& list) {
    starts.assign(given.atoms + 1, 0);
    for (const int64_t atom : parts.atoms) starts[row_of[atom] + 1] = list.of(atom);
    for (int64_t row = 0; row < given.atoms; ++row) starts[row + 1] += starts[row];
    senders.resize(starts.back());
    pairs.resize(starts.back());
    vectors.resize(3 * starts.back());
    for (int64_t atom = 0; atom < given.atoms; ++atom)
      for (int64_t n = 0; n < list.of(atom); ++n) {
        const int64_t pair = list.pairs[list.starts[atom] + n], edge = starts[row_of[atom]] + n;
        senders[edge] = row_of[given.senders[pair]];
        pairs[edge] = pair;
        std::copy_n(given.vectors + 3 * pair, 3, vectors.begin() + 3 * edge);
      }
  }
};

}  // namespace trnqc::mace
