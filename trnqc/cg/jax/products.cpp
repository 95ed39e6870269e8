// Tensor products and their convolutions as calls of XLA's foreign function interface on the CPU.
//
// The operands are those of a direction (call.h), for a convolution followed by the receivers and senders of the edges.
// Python has checked shapes and types. The attribute `kernels` names the file and the function of each kernel.
#include <string_view>

#include "call.h"
#include "graph.h"
#include "kernels.h"

namespace trnqc {

template <typename Float>
static void add_up(const std::vector<double>& partial, int64_t shares, int64_t size, void* out) {
  const Float* rows = reinterpret_cast<const Float*>(partial.data());
  Float* sum = static_cast<Float*>(out);
  std::fill(sum, sum + size, Float(0));
  for (int64_t share = 0; share < shares; ++share)
    for (int64_t n = 0; n < size; ++n) sum[n] += rows[share * size + n];
}

// The addresses of operands and results. Gradients of shared weights have one row for each share until they are added up.
struct Operands {
  Parameters addresses;
  int64_t nodes, edges;
  std::vector<double> partial;
  void* gw = nullptr;
  int64_t weights = 0;
  bool is_double;

  Operands(ffi::RemainingArgs& args, ffi::RemainingRets& results, const Direction& direction) {
    for (size_t n = 0; n < direction.reads.size(); ++n) {
      const auto buffer = args.get<ffi::AnyBuffer>(n).value();
      addresses.push_back(reinterpret_cast<intptr_t>(buffer.untyped_data()));
    }
    const auto x = args.get<ffi::AnyBuffer>(0).value(), y = args.get<ffi::AnyBuffer>(1).value();
    nodes = x.dimensions()[0], edges = y.dimensions()[0];
    is_double = x.element_type() == ffi::DataType::F64;
    for (size_t n = 0; n < direction.writes.size(); ++n) {
      const auto buffer = *results.get<ffi::AnyBuffer>(n).value();
      addresses.push_back(reinterpret_cast<intptr_t>(buffer.untyped_data()));
      if (direction.writes[n] == "gw") gw = buffer.untyped_data(), weights = buffer.element_count();
    }
  }

  void share_weights(int64_t shares) {
    // In units of doubles, which is enough for either type.
    partial.assign(shares * weights, 0.0);
    for (auto& address : addresses)
      if (reinterpret_cast<void*>(address) == gw && gw) address = reinterpret_cast<intptr_t>(partial.data());
  }

  void add_shares(int64_t shares) const {
    is_double ? add_up<double>(partial, shares, weights, gw) : add_up<float>(partial, shares, weights, gw);
  }
};

static void multiply(ffi::ThreadPool& pool, Operands& operands, const Direction& direction, void* kernel, bool shared) {
  if (direction.name == "forward") {
    in_parallel(pool, operands.nodes, operands.nodes / LEAST_ROWS,
                [&](int64_t begin, int64_t end) { call_kernel(kernel, operands.addresses, begin, end); });
    return;
  }
  if (shared) operands.share_weights(BATCH_SHARES);
  in_parallel(pool, BATCH_SHARES, operands.nodes / LEAST_ROWS, [&](int64_t begin, int64_t end) {
    call_by_shares(kernel, operands.addresses, operands.nodes, begin, end);
  });
  if (shared) operands.add_shares(BATCH_SHARES);
}

static void convolve(ffi::ThreadPool& pool, Operands& operands, const Direction& direction,
                     const std::vector<void*>& kernels, const Graph& graph, bool shared) {
  const bool sums = shared && operands.gw;
  if (sums) operands.share_weights(graph.by_sender.n_shares());
  const auto passes = passes_of(direction.name);
  for (size_t n = 0; n < passes.size(); ++n) {
    const Order& order = passes[n].by_sender ? graph.by_sender : graph.by_receiver;
    Parameters parameters;
    for (const Integers* numbers : {&order.shares, &order.starts, &order.edges, &order.far})
      parameters.push_back(reinterpret_cast<intptr_t>(numbers->data()));
    for (const size_t operand : passes[n].operands) parameters.push_back(operands.addresses[operand]);
    in_parallel(pool, order.n_shares(), operands.edges / LEAST_EDGES,
                [&](int64_t begin, int64_t end) { call_kernel(kernels[n], parameters, begin, end); });
  }
  if (sums) operands.add_shares(graph.by_sender.n_shares());
}

static std::shared_ptr<const Graph> graph_in(ffi::RemainingArgs& args, size_t first, int64_t nodes) {
  const auto rows = args.get<ffi::AnyBuffer>(first).value(), cols = args.get<ffi::AnyBuffer>(first + 1).value();
  const auto edges = static_cast<int64_t>(rows.element_count());
  if (rows.element_type() == ffi::DataType::S64)
    return graph_of(rows.typed_data<int64_t>(), cols.typed_data<int64_t>(), edges, nodes);
  return graph_of(rows.typed_data<int32_t>(), cols.typed_data<int32_t>(), edges, nodes);
}

static ffi::Error evaluate(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets results,
                           std::string_view name, std::string_view files, bool shared) {
  try {
    const Direction& direction = direction_of(std::string(name));
    const auto kernels = kernels_in(std::string(files));
    Operands operands(args, results, direction);
    const size_t reads = direction.reads.size();
    if (args.size() > reads) {
      convolve(pool, operands, direction, kernels, *graph_in(args, reads, operands.nodes), shared);
    } else {
      multiply(pool, operands, direction, kernels.at(0), shared);
    }
  } catch (const std::exception& error) {
    return ffi::Error::Internal(error.what());
  }
  return ffi::Error::Success();
}

}  // namespace trnqc

XLA_FFI_DEFINE_HANDLER_SYMBOL(trnqc_cg, trnqc::evaluate,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<std::string_view>("direction")
                                  .Attr<std::string_view>("kernels")
                                  .Attr<bool>("shared"));
