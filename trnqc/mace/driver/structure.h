// A structure in the order of the kernels: atoms by element, copies behind them, edges by receiver.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "failure.h"

namespace trnqc::mace {

using Integers = std::vector<int64_t>;

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
  // First atoms of shares with about equal numbers of edges, and their first blocks.
  Integers shares, share_blocks;

  int64_t receiving() const { return static_cast<int64_t>(atoms.size()); }
  int64_t nodes() const { return static_cast<int64_t>(elements.size()); }
  int64_t edges() const { return static_cast<int64_t>(senders.size()); }

  void set(const trnqc_mace_structure& given, const Elements& model, int64_t threads) {
    check(given);
    sort_atoms(given, model);
    sort_edges(given, model.cutoff);
    divide(model.block, threads);
  }

 private:
  [[noreturn]] static void fail(const std::string& message) { throw Failure(TRNQC_MACE_INPUT, message); }

  static void check(const trnqc_mace_structure& s) {
    if (s.atoms < 0 || s.copies < 0 || s.pairs < 0) fail("expected numbers of atoms, copies and pairs from 0 on");
    if ((s.atoms + s.copies && !s.numbers) || (s.pairs && !(s.receivers && s.senders && s.vectors)))
      fail("expected arrays of atomic numbers, receivers, senders and vectors, found NULL");
  }

  void sort_atoms(const trnqc_mace_structure& given, const Elements& model) {
    const int64_t total = given.atoms + given.copies;
    Integers found(total), missing;
    for (int64_t n = 0; n < total; ++n) {
      const auto place = model.places.find(given.numbers[n]);
      if (place == model.places.end()) {
        missing.push_back(given.numbers[n]);
      } else {
        found[n] = place->second;
      }
    }
    if (!missing.empty()) {
      std::sort(missing.begin(), missing.end());
      missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
      std::string text;
      for (const int64_t number : missing) text += (text.empty() ? "" : ", ") + std::to_string(number);
      fail("numbers: the model has the elements " + model.names() + "; found [" + text + "]");
    }
    atoms.resize(given.atoms);
    for (int64_t n = 0; n < given.atoms; ++n) atoms[n] = n;
    std::stable_sort(atoms.begin(), atoms.end(), [&](int64_t a, int64_t b) { return found[a] < found[b]; });
    row_of.resize(total);
    elements.resize(total);
    for (int64_t row = 0; row < total; ++row) {
      const int64_t n = row < given.atoms ? atoms[row] : row;
      row_of[n] = row;
      elements[row] = found[n];
    }
    for (int64_t n = 0; n < given.atoms; ++n) atoms[n] = n;
  }

  void sort_edges(const trnqc_mace_structure& given, double cutoff) {
    starts.assign(given.atoms + 1, 0);
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
      if (near[pair]) ++starts[row_of[i] + 1];
    }
    for (int64_t row = 0; row < given.atoms; ++row) starts[row + 1] += starts[row];
    Integers next(starts.begin(), starts.end() - 1);
    senders.resize(starts.back());
    receivers.resize(starts.back());
    pairs.resize(starts.back());
    vectors.resize(3 * starts.back());
    for (int64_t pair = 0; pair < given.pairs; ++pair) {
      if (!near[pair]) continue;
      const int64_t row = row_of[given.receivers[pair]], edge = next[row]++;
      receivers[edge] = row;
      senders[edge] = row_of[given.senders[pair]];
      pairs[edge] = pair;
      std::copy_n(given.vectors + 3 * pair, 3, vectors.begin() + 3 * edge);
    }
  }

  void divide(int64_t largest, int64_t threads) {
    shares.assign(1, 0);
    for (int64_t n = 1; n < threads; ++n) {
      const auto wanted = std::lower_bound(starts.begin(), starts.end(), (edges() * n + threads - 1) / threads);
      shares.push_back(std::min<int64_t>(wanted - starts.begin(), receiving()));
    }
    shares.push_back(receiving());
    blocks.clear();
    block_elements.clear();
    block_starts.clear();
    share_blocks.assign(1, 0);
    for (int64_t share = 0; share < threads; ++share) {
      for (int64_t first = shares[share], end; first < shares[share + 1]; first = end) {
        end = first;
        while (end < shares[share + 1] && elements[end] == elements[first]) ++end;
        add_blocks(first, end, largest);
      }
      share_blocks.push_back(static_cast<int64_t>(block_elements.size()));
    }
    block_starts.push_back(receiving());
  }

  // Divide atoms of one element into blocks.
  void add_blocks(int64_t first, int64_t end, int64_t largest) {
    const int64_t size = end - first, parts = (size + largest - 1) / largest;
    for (int64_t n = 0; n < parts; ++n) {
      const int64_t begin = first + size * n / parts;
      blocks.insert(blocks.end(), {elements[first], begin, first + size * (n + 1) / parts - begin});
      block_elements.push_back(elements[first]);
      block_starts.push_back(begin);
    }
  }
};

}  // namespace trnqc::mace
