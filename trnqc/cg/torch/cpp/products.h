// Tensor products and their convolutions on the CPU: operands are checked, results allocated, kernels called on threads.
// The kernels are those of trnqc/cg/cpu/engine.py, called in the same way.
#pragma once

#include <string>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/stack.h>

#include "call.h"
#include "graph.h"
#include "kernels.h"

namespace trnqc {

inline intptr_t address_of(const at::Tensor& tensor) { return reinterpret_cast<intptr_t>(tensor.data_ptr()); }
inline intptr_t address_of(const Integers& numbers) { return reinterpret_cast<intptr_t>(numbers.data()); }

inline std::string dtype_of(const at::Tensor& x) {
  TORCH_CHECK(x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble,
              "x: expected torch.float32 or torch.float64, found ", x.scalar_type());
  return x.scalar_type() == at::kFloat ? "float32" : "float64";
}

// One call of an operator: its operands, and the numbers of their rows.
struct Operands {
  const Direction& direction;
  std::vector<at::Tensor> tensors;
  int64_t nodes, edges;

  int64_t rows(char kind) const { return kind == 'x' || kind == 'z' ? nodes : edges; }

  std::vector<int64_t> shape(const Problem& problem, const std::string& name) const {
    const char kind = name.back();
    if (kind == 'w' && problem.shared_weights) return {problem.w};
    return {rows(kind), problem.row_length(kind)};
  }

  // Check types and shapes, and make the operands contiguous.
  void check(const Problem& problem) {
    for (size_t n = 0; n < tensors.size(); ++n) {
      const auto expected = shape(problem, direction.reads[n]);
      TORCH_CHECK(tensors[n].scalar_type() == tensors[0].scalar_type(), direction.reads[n], ": expected ",
                  tensors[0].scalar_type(), ", as x has, found ", tensors[n].scalar_type());
      TORCH_CHECK(tensors[n].sizes() == expected, direction.reads[n], ": expected shape ", at::IntArrayRef(expected),
                  ", found ", tensors[n].sizes());
      tensors[n] = tensors[n].contiguous();
    }
  }

  // Append the arrays of the results, which are returned. Those of shared weights have one row for each share.
  std::vector<at::Tensor> append_results(const Problem& problem, int64_t shares) {
    for (const auto& name : direction.writes) {
      const bool partial = name == "gw" && problem.shared_weights;
      tensors.push_back(partial ? at::zeros({shares, problem.w}, tensors[0].options())
                                : at::empty(shape(problem, name), tensors[0].options()));
    }
    return {tensors.end() - static_cast<int64_t>(direction.writes.size()), tensors.end()};
  }
};

inline Operands operands_of(const std::string& name, torch::jit::Stack& stack, size_t rest) {
  const Direction& direction = direction_of(name);
  const auto first = stack.end() - static_cast<int64_t>(direction.reads.size() + rest);
  Operands operands{direction, {}, 0, 0};
  for (size_t n = 0; n < direction.reads.size(); ++n) operands.tensors.push_back((first + n)->toTensor());
  for (size_t n = 0; n < 2; ++n)
    TORCH_CHECK(operands.tensors[n].dim() == 2, direction.reads[n], ": expected two dimensions, found ",
                operands.tensors[n].sizes());
  operands.nodes = operands.edges = operands.tensors[0].size(0);
  return operands;
}

// Replace the arguments on the stack by the results.
inline void put_results(torch::jit::Stack& stack, size_t arguments, const Problem& problem, const Direction& direction,
                        std::vector<at::Tensor> results) {
  torch::jit::drop(stack, arguments);
  for (size_t n = 0; n < results.size(); ++n)
    stack.emplace_back(direction.writes[n] == "gw" && problem.shared_weights ? results[n].sum(0) : results[n]);
}

// Tensor products row by row. The stack has the operands and the text of the problem.
inline void multiply(const std::string& name, torch::jit::Stack& stack) {
  Operands operands = operands_of(name, stack, 1);
  const Kernel& kernel = kernels().get(name, dtype_of(operands.tensors[0]), stack.back().toStringRef());
  const Problem problem = kernel.problem();
  operands.check(problem);
  const auto results = operands.append_results(problem, BATCH_SHARES);
  Parameters parameters;
  for (const auto& tensor : operands.tensors) parameters.push_back(address_of(tensor));
  const int64_t rows = operands.nodes;
  if (name == "forward") {
    at::parallel_for(0, rows, LEAST_ROWS, [&](int64_t begin, int64_t end) {
      call_kernel(kernel.address, parameters, begin, end);
    });
  } else {
    at::parallel_for(0, BATCH_SHARES, std::max<int64_t>(1, BATCH_SHARES * LEAST_ROWS / std::max<int64_t>(1, rows)),
                     [&](int64_t begin, int64_t end) {
                       call_by_shares(kernel.address, parameters, rows, begin, end);
                     });
  }
  put_results(stack, operands.direction.reads.size() + 1, problem, operands.direction, results);
}

inline at::Tensor checked_index(const char* name, const at::Tensor& index) {
  TORCH_CHECK(index.scalar_type() == at::kLong && index.dim() == 1 && index.device().is_cpu(), name,
              ": expected torch.int64 [edges] on the CPU, found ", index.toString(), " ", index.sizes());
  return index.contiguous();
}

inline void run_pass(const Kernel& kernel, const Pass& pass, const Order& order, const Operands& operands) {
  Parameters parameters{address_of(order.shares), address_of(order.starts), address_of(order.edges),
                        address_of(order.far)};
  for (const size_t n : pass.operands) parameters.push_back(address_of(operands.tensors[n]));
  const int64_t edges = std::max<int64_t>(1, operands.edges);
  at::parallel_for(0, order.n_shares(), std::max<int64_t>(1, order.n_shares() * LEAST_EDGES / edges),
                   [&](int64_t begin, int64_t end) { call_kernel(kernel.address, parameters, begin, end); });
}

// Convolutions. The stack has the operands, rows, cols, the text of the problem, `deterministic` and `kahan`.
inline void convolve(const std::string& name, torch::jit::Stack& stack) {
  constexpr size_t rest = 5;
  Operands operands = operands_of(name, stack, rest);
  const auto tail = stack.end() - rest;
  const at::Tensor rows = checked_index("rows", tail[0].toTensor()), cols = checked_index("cols", tail[1].toTensor());
  TORCH_CHECK(rows.numel() == cols.numel(), "expected as many receivers as senders, found ", rows.numel(), " rows, ",
              cols.numel(), " cols");
  operands.edges = rows.numel();
  const auto graph = graph_of(rows.const_data_ptr<int64_t>(), cols.const_data_ptr<int64_t>(), operands.edges,
                              operands.nodes);
  const std::string dtype = dtype_of(operands.tensors[0]), suffix = tail[4].toBool() ? "_kahan" : "";
  const auto passes = passes_of(name);
  const auto kernel_of = [&](const Pass& pass) -> const Kernel& {
    return kernels().get(pass.name + suffix, dtype, tail[2].toStringRef());
  };
  const Problem problem = kernel_of(passes[0]).problem();
  operands.check(problem);
  const auto results = operands.append_results(problem, graph->by_sender.n_shares());
  for (const Pass& pass : passes)
    run_pass(kernel_of(pass), pass, pass.by_sender ? graph->by_sender : graph->by_receiver, operands);
  put_results(stack, operands.direction.reads.size() + rest, problem, operands.direction, results);
}

}  // namespace trnqc
