// The steps of an evaluation: kernels in their order, their operands, and the memory that these need.
//
// A program is an array of int64 that trnqc/mace/driver/steps.py writes; the names of counts and of arrays of the
// structure are in the same order there.
#pragma once

#include <cstring>
#include <vector>

#include "call.h"
#include "memory.h"
#include "rows.h"
#include "structure.h"
#include "team.h"

namespace trnqc::mace {

enum Count { ONE, ATOMS, RECEIVERS, EDGES, BLOCKS, THREADS, COPIES, GROUPS, COUNTS };
enum Array { STARTS, SENDERS, RECEIVER_OF, ELEMENTS, VECTORS, BLOCK_TABLE, BLOCK_STARTS, BLOCK_ELEMENTS, NODES, SHARES,
             ROW_COUNT, ROW_EDGES, EDGE_LIST, EDGE_ROWS, RUNS, BLOCK_RUNS, ARRAYS };
enum Operand { CONSTANT, BUFFER, COUNT, ARRAY, NUMBER };
enum Kind { KERNEL, EXCHANGE, EXCHANGE_REVERSE };

constexpr int64_t VERSION = 3;
// Parts of a step for each thread. With several of them, other threads can do the parts of a thread that is delayed.
constexpr int64_t PARTS = 4;
// Largest number of atoms of a range. In a crystal where an atom has 76 neighbours, half of them are in the range of the
// atom.
constexpr int64_t RANGE = 144;
// Buffers begin at a cache line, whose size in bytes this is.
constexpr size_t LINE = 64;

struct Step {
  Kind kind;
  // Number of the function, or of the buffer whose rows are exchanged. The operand of an exchange is the bytes of a row.
  int64_t number;
  // The pass of which the step is a part, or 0. Each thread runs the steps of a pass for one range of its atoms after
  // another.
  int64_t pass;
  Count groups;
  std::vector<std::pair<Operand, int64_t>> operands;
};

// A buffer: bytes for each of several counts, and whether it is cleared before its first use.
struct Buffer {
  int64_t cleared, bytes[COUNTS];
  // The steps between which its contents are needed, and its place in the memory of an evaluation or of a thread.
  size_t first = SIZE_MAX, last = 0, begin = 0, end = 0;
  // Bytes of an atom, if the buffer is a part of the memory of a thread, for the atoms of a range; else 0.
  int64_t row = 0;

  bool overlaps(const Buffer& other) const { return first <= other.last && other.first <= last; }
};

// Consecutive blocks of the share of a thread, their first atom, and their last atom + 1.
struct Range {
  int64_t thread, first_block, last_block, atoms[2];
  const Rows& rows;
};

class Program {
 public:
  Elements elements;
  int64_t element_bytes = 0;

  Program(const int64_t* words, int64_t count, std::vector<const void*> constants, std::vector<void*> functions)
      : at_(words), end_(words + count), constants_(std::move(constants)), functions_(std::move(functions)) {
    if (next() != VERSION) throw Failure(TRNQC_MACE_FILE, "the program of the model has another version");
    element_bytes = next();
    elements.block = next();
    edge_lanes_ = next();
    row_block_ = below(next(), -1);
    if (!row_block_) below(-1, 0);
    paired_ = next();
    const int64_t cutoff = next();
    std::memcpy(&elements.cutoff, &cutoff, sizeof cutoff);
    for (int64_t n = 0, total = next(); n < total; ++n)
      if (const int64_t number = next()) elements.places.emplace(static_cast<int32_t>(number), n);
    energies_ = below(next(), -1);
    gradients_ = below(next(), -1);
    buffers_.resize(below(next(), end_ - at_));
    for (Buffer& buffer : buffers_) {
      buffer.cleared = next();
      for (int64_t& bytes : buffer.bytes) bytes = next();
    }
    below(energies_, buffers_.size());
    below(gradients_, buffers_.size());
    steps_.resize(below(next(), end_ - at_));
    for (Step& step : steps_) read(step);
    for (size_t n = 0; n < steps_.size(); ++n) use(n);
    buffers_[energies_].last = buffers_[gradients_].last = steps_.size();
    for (Buffer& buffer : buffers_) fit_passes(buffer);
  }

  // The energies of the rows, and the gradients of the edges.
  const double* energies() const { return reinterpret_cast<const double*>(data(energies_)); }
  const double* gradients() const { return reinterpret_cast<const double*>(data(gradients_)); }

  void run(const Structure& structure, const trnqc_mace_structure& given, int threads) {
    const int64_t edges = structure.edges(), nodes = structure.nodes();
    const int64_t counts[COUNTS] = {1,
                                    nodes,
                                    structure.receiving(),
                                    edges,
                                    static_cast<int64_t>(structure.block_elements.size()),
                                    threads,
                                    threads * nodes,
                                    (edges + edge_lanes_ - 1) / edge_lanes_};
    range_rows_ = structure.largest_range();
    rows_.resize(threads);
    place(counts);
    Team team(threads);
    for (size_t n = 0, after; n < steps_.size(); n = after) {
      const Step& step = steps_[n];
      after = step.pass ? end_of_pass(n) : n + 1;
      for (const Buffer& buffer : buffers_)
        if (buffer.cleared && buffer.first == n) std::memset(memory_.data() + buffer.begin, 0, buffer.end - buffer.begin);
      if (step.pass) {
        team.run(threads, [&](int64_t thread) { run_pass(n, after, structure, counts, thread); });
      } else if (step.kind == KERNEL) {
        call(step, structure, counts, team);
      } else if (given.exchange) {
        given.exchange(given.context, step.kind == EXCHANGE_REVERSE, data(step.number),
                       step.operands[0].second, static_cast<int>(element_bytes), structure.row_of.data());
      }
    }
  }

  // The most bytes of a row that is exchanged.
  int64_t row_bytes() const {
    int64_t most = 0;
    for (const Step& step : steps_)
      if (step.kind != KERNEL) most = std::max(most, step.operands[0].second);
    return most;
  }

 private:
  char* data(int64_t buffer) const { return memory_.data() + buffers_[buffer].begin; }

  // Note that a step uses its buffers.
  void use(size_t n) {
    const auto note = [&](Buffer& buffer) {
      buffer.first = std::min(buffer.first, n);
      buffer.last = std::max(buffer.last, n);
    };
    if (steps_[n].kind != KERNEL) note(buffers_[steps_[n].number]);
    for (const auto& [operand, number] : steps_[n].operands)
      if (operand == BUFFER) note(buffers_[number]);
  }

  size_t end_of_pass(size_t n) const {
    size_t end = n;
    while (end < steps_.size() && steps_[end].pass == steps_[n].pass) ++end;
    return end;
  }

  // A buffer that only one pass uses is a part of the memory of each thread if it has only rows for atoms. Threads run the
  // steps of a pass at different times, so another buffer keeps its contents during all of a pass that uses it.
  void fit_passes(Buffer& buffer) {
    if (buffer.first == SIZE_MAX) return;
    const int64_t pass = steps_[buffer.first].pass;
    bool rows = buffer.bytes[RECEIVERS] && !buffer.cleared;
    for (int c = 0; c < COUNTS; ++c)
      if (c != RECEIVERS && buffer.bytes[c]) rows = false;
    const bool within = buffer.last < steps_.size() && steps_[buffer.last].pass == pass;
    if (pass && within && rows) {
      buffer.row = buffer.bytes[RECEIVERS];
      return;
    }
    while (pass && buffer.first && steps_[buffer.first - 1].pass == pass) --buffer.first;
    if (buffer.last < steps_.size() && steps_[buffer.last].pass) buffer.last = end_of_pass(buffer.last) - 1;
  }

  // Run the steps of a pass for all ranges of a thread.
  void run_pass(size_t begin, size_t end, const Structure& s, const int64_t* counts, int64_t thread) {
    Rows& rows = rows_[thread];
    for (int64_t n = s.share_ranges[thread]; n < s.share_ranges[thread + 1]; ++n) {
      const int64_t first = s.range_blocks[n], after = s.range_blocks[n + 1];
      const Range range{thread, first, after, {s.block_starts[first], s.block_starts[after]}, rows};
      if (uses_rows(begin, end)) rows.set(s, range.atoms[0], range.atoms[1], paired_, row_block_);
      for (size_t step = begin; step < end; ++step) {
        Parameters parameters;
        for (const auto& [operand, number] : steps_[step].operands)
          parameters.push_back(value(operand, number, s, counts, &range));
        const bool by_block = steps_[step].groups == BLOCKS;
        call_kernel(functions_[steps_[step].number], parameters, by_block ? first : thread, by_block ? after : thread + 1);
      }
    }
  }

  bool uses_rows(size_t begin, size_t end) const {
    for (size_t step = begin; step < end; ++step)
      for (const auto& [operand, number] : steps_[step].operands)
        if (operand == ARRAY && number >= ROW_COUNT) return true;
    return false;
  }

  // Give each buffer a place in the memory of an evaluation, or in that of each thread, which follows it.
  void place(const int64_t* counts) {
    std::vector<Buffer*> common, of_thread;
    for (Buffer& buffer : buffers_) {
      size_t bytes = buffer.row * range_rows_;
      if (!buffer.row)
        for (int c = 0; c < COUNTS; ++c) bytes += buffer.bytes[c] * counts[c];
      buffer.begin = 0;
      buffer.end = (bytes + LINE - 1) / LINE * LINE;
      (buffer.row ? of_thread : common).push_back(&buffer);
    }
    common_bytes_ = pack(common);
    thread_bytes_ = pack(of_thread);
    memory_.reserve(common_bytes_ + counts[THREADS] * thread_bytes_);
  }

  // Give each buffer a place where no other one is that is needed at the same time, as low as possible. Of three orders of
  // the buffers, the one that needs the least memory is taken. Returns its size.
  static size_t pack(const std::vector<Buffer*>& buffers) {
    using Less = bool (*)(const Buffer*, const Buffer*);
    constexpr Less orders[] = {
        [](const Buffer* a, const Buffer* b) { return a->end - a->begin > b->end - b->begin; },     // the largest first
        [](const Buffer* a, const Buffer* b) { return a->first < b->first; },                       // the soonest first
        [](const Buffer* a, const Buffer* b) { return a->last - a->first > b->last - b->first; }};  // the longest used first
    std::vector<Buffer*> order = buffers, best;
    size_t least = SIZE_MAX;
    for (const Less less : orders) {
      std::stable_sort(order.begin(), order.end(), less);
      if (const size_t bytes = pack_in_order(order); bytes < least) {
        least = bytes;
        best = order;
      }
    }
    return pack_in_order(best);
  }

  static size_t pack_in_order(const std::vector<Buffer*>& order) {
    std::vector<Buffer*> placed;
    size_t total = 0;
    for (Buffer* buffer : order) {
      buffer->end -= buffer->begin;
      buffer->begin = 0;
      for (const Buffer* other : placed)
        if (buffer->overlaps(*other) && buffer->begin < other->end && other->begin < buffer->end) {
          buffer->end += other->end - buffer->begin;
          buffer->begin = other->end;
        }
      placed.insert(std::upper_bound(placed.begin(), placed.end(), buffer,
                                     [](const Buffer* a, const Buffer* b) { return a->begin < b->begin; }),
                    buffer);
      total = std::max(total, buffer->end);
    }
    return total;
  }

  void call(const Step& step, const Structure& structure, const int64_t* counts, Team& team) {
    Parameters parameters;
    for (const auto& [operand, number] : step.operands) parameters.push_back(value(operand, number, structure, counts, nullptr));
    void* function = functions_[step.number];
    const int64_t groups = counts[step.groups], threads = counts[THREADS];
    const int64_t parts = std::min(groups, threads > 1 ? PARTS * threads : 1);
    team.run(parts, [&](int64_t part) {
      call_kernel(function, parameters, groups * part / parts, groups * (part + 1) / parts);
    });
  }

  // What is passed for an operand. Kernels count atoms from that of the structure, and shares from the first thread.
  intptr_t value(Operand operand, int64_t number, const Structure& s, const int64_t* counts, const Range* range) const {
    const auto address = [](const void* data) { return reinterpret_cast<intptr_t>(data); };
    switch (operand) {
      case CONSTANT: return address(constants_[number]);
      case BUFFER: {
        const int64_t row = buffers_[number].row;
        if (!row) return address(data(number));
        return address(data(number)) + common_bytes_ + range->thread * thread_bytes_ - range->atoms[0] * row;
      }
      case COUNT: return counts[number];
      case NUMBER: return number;
      case ARRAY: break;
    }
    if (number == VECTORS) return address(s.vectors.data());
    if (number == SHARES && range)
      return address(range->atoms) - range->thread * static_cast<intptr_t>(sizeof(int64_t));
    if (number >= ROW_COUNT) {
      const Rows& r = range->rows;
      const Integers* const of_rows[] = {&r.row_count, &r.row_edges, &r.edge_list, &r.edge_rows, &r.runs, &r.block_runs};
      return address(of_rows[number - ROW_COUNT]->data());
    }
    const Integers* const arrays[] = {&s.starts, &s.senders,      &s.receivers,      &s.elements, nullptr,
                                      &s.blocks, &s.block_starts, &s.block_elements, &s.atoms,    &s.shares};
    return address(arrays[number]->data());
  }

  void read(Step& step) {
    step.kind = static_cast<Kind>(below(next(), EXCHANGE_REVERSE + 1));
    step.number = below(next(), step.kind == KERNEL ? functions_.size() : buffers_.size());
    step.pass = below(next(), -1);
    step.groups = static_cast<Count>(below(next(), COUNTS));
    if (step.pass && (step.kind != KERNEL || (step.groups != THREADS && step.groups != BLOCKS))) below(-1, 0);
    step.operands.resize(below(next(), MOST_PARAMETERS + 1));
    if (step.operands.empty()) below(-1, 0);
    for (auto& [operand, number] : step.operands) {
      operand = static_cast<Operand>(below(next(), NUMBER + 1));
      number = next();
      const int64_t limits[] = {static_cast<int64_t>(constants_.size()), static_cast<int64_t>(buffers_.size()), COUNTS,
                                step.pass ? ARRAYS : ROW_COUNT};
      if (operand != NUMBER) below(number, limits[operand]);
    }
  }

  int64_t next() {
    if (at_ == end_) throw Failure(TRNQC_MACE_FILE, "the program of the model ends too early");
    return *at_++;
  }

  // The number, which must be from 0 on and below a limit unless that is negative.
  static int64_t below(int64_t number, int64_t limit) {
    if (number < 0 || (limit >= 0 && number >= limit))
      throw Failure(TRNQC_MACE_FILE, "the program of the model contains a wrong number, " + std::to_string(number));
    return number;
  }

  const int64_t *at_, *end_;
  int64_t edge_lanes_ = 1, energies_ = 0, gradients_ = 0;
  std::vector<const void*> constants_;
  std::vector<void*> functions_;
  std::vector<Buffer> buffers_;
  Block memory_;
  int64_t row_block_ = 1, paired_ = 0, range_rows_ = 0;
  size_t common_bytes_ = 0, thread_bytes_ = 0;
  // Those of the range that each thread computes.
  std::vector<Rows> rows_;
  std::vector<Step> steps_;
};

}  // namespace trnqc::mace
