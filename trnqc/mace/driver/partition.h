// The division of atoms into parts of neighbours: first into shares of the threads, then into ranges, then into tiles.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace trnqc::mace {

using Integers = std::vector<int64_t>;

// Pairs sorted by receiver: the numbers in the caller's list of the pairs of atom n are pairs[starts[n]], ...,
// pairs[starts[n + 1] - 1].
struct PairList {
  Integers starts, pairs;

  int64_t of(int64_t atom) const { return starts[atom + 1] - starts[atom]; }
};

class Partition {
 public:
  // The atoms in the order of the parts; the ends of tiles; the first atom of each range, and the first range of each
  // share, with the end.
  Integers atoms, tiles, ranges, shares;

  // Divide atoms into shares with about equal numbers of pairs, these into ranges of at most so many atoms, and these into
  // tiles of at most so many atoms.
  Partition(const trnqc_mace_structure& given, const PairList& list, int64_t threads, int64_t range, int64_t tile)
      : list_(list) {
    for (int64_t atom = 0; atom < given.atoms; ++atom) atoms.push_back(atom);
    find_places(given);
    Integers ends;
    bisect(0, given.atoms, threads, [&](int64_t atom) { return list_.of(atom) + 1; }, ends);
    shares.push_back(0);
    for (int64_t begin = 0; const int64_t end : ends) {
      divide(begin, end, range, ranges);
      shares.push_back(static_cast<int64_t>(ranges.size()));
      begin = end;
    }
    for (int64_t begin = 0; const int64_t end : ranges) {
      divide(begin, end, tile, tiles);
      begin = end;
    }
    ranges.insert(ranges.begin(), 0);
  }

 private:
  // Positions that the vectors of pairs imply. Neighbours are reached one after another, so that those of periodic
  // structures are in one piece.
  void find_places(const trnqc_mace_structure& given) {
    places_.assign(given.atoms, {0, 0, 0});
    std::vector<bool> reached(given.atoms);
    Integers queue;
    for (int64_t start = 0; start < given.atoms; ++start) {
      if (reached[start]) continue;
      reached[start] = true;
      queue.assign(1, start);
      for (size_t n = 0; n < queue.size(); ++n)
        for (int64_t p = list_.starts[queue[n]]; p < list_.starts[queue[n] + 1]; ++p) {
          const int64_t pair = list_.pairs[p], sender = given.senders[pair];
          if (sender >= given.atoms || reached[sender]) continue;
          reached[sender] = true;
          for (int k = 0; k < 3; ++k) places_[sender][k] = places_[queue[n]][k] - given.vectors[3 * pair + k];
          queue.push_back(sender);
        }
    }
  }

  // Divide the atoms begin .. end into equal parts of at most so many atoms.
  void divide(int64_t begin, int64_t end, int64_t largest, Integers& ends) {
    bisect(begin, end, (end - begin + largest - 1) / largest, [](int64_t) { return 1; }, ends);
  }

  // Divide the atoms begin .. end into parts of about equal weights, along the longest edge of their box each time, and
  // append the ends of the parts.
  template <typename Weight>
  void bisect(int64_t begin, int64_t end, int64_t parts, const Weight& weight, Integers& ends) {
    if (parts < 2) {
      if (parts) ends.push_back(end);
      return;
    }
    sort(begin, end);
    int64_t total = 0, sum = 0, middle = begin;
    for (int64_t n = begin; n < end; ++n) total += weight(atoms[n]);
    for (; middle < end && (sum + weight(atoms[middle])) * parts <= total * (parts / 2); ++middle) sum += weight(atoms[middle]);
    bisect(begin, middle, parts / 2, weight, ends);
    bisect(middle, end, parts - parts / 2, weight, ends);
  }

  void sort(int64_t begin, int64_t end) {
    std::array<double, 3> low, high;
    low.fill(1e300);
    high.fill(-1e300);
    for (int64_t n = begin; n < end; ++n)
      for (int k = 0; k < 3; ++k) {
        low[k] = std::min(low[k], places_[atoms[n]][k]);
        high[k] = std::max(high[k], places_[atoms[n]][k]);
      }
    int axis = 0;
    for (int k = 1; k < 3; ++k)
      if (high[k] - low[k] > high[axis] - low[axis]) axis = k;
    std::sort(atoms.begin() + begin, atoms.begin() + end, [&](int64_t a, int64_t b) {
      return places_[a][axis] != places_[b][axis] ? places_[a][axis] < places_[b][axis] : a < b;
    });
  }

  const PairList& list_;
  std::vector<std::array<double, 3>> places_;
};

}  // namespace trnqc::mace
