// Symmetric contractions on the CPU: the operators value and gradient, and their derivatives, composed of the operators.
//
// Arguments, results and derivatives are those of trnqc/cg/torch/contraction_operators.py and contraction_derivatives.py.
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>

#include "contraction.h"
#include "products.h"

namespace trnqc {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using Value = Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, std::string_view);
using Gradient = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                            std::string_view, bool);

// One call of a kernel: its operands in the layout of the kernel, which live as long as this object.
class ContractionCall {
 public:
  // `kind` is value, gradient or gradients; only value has no gb.
  ContractionCall(const std::string& kind, const Tensor& c, const Tensor& x, const Tensor& along, const Tensor& gb,
                  const Tensor& elements, std::string_view problem)
      : options_(x.options()), nodes_(x.size(0)), numbers_(elements.contiguous()), of_x_(kind != "value"), by_block_(kind == "gradients") {
    TORCH_CHECK(x.dim() == 3 && along.dim() == 4, "x and along: expected three and four dimensions, found ", x.sizes(),
                " and ", along.sizes());
    const std::string name = "cg_contraction_" + kind + "_" + std::to_string(along.size(0));
    kernel_ = kernels().get(name, dtype_of(x), std::string(problem));
    shape_ = kernel_.contraction();
    check("c", c, {c.dim() ? c.size(0) : 0, shape_.terms, shape_.channels});
    check("x", x, {nodes_, shape_.x, shape_.channels});
    check("along", along, {along.size(0), nodes_, shape_.x, shape_.channels});
    TORCH_CHECK(elements.scalar_type() == at::kLong && elements.dim() == 1 && elements.size(0) == nodes_,
                "elements: expected torch.int64 [", nodes_, "], one for each node, found ", elements.toString(), " ",
                elements.sizes());
    add(packed(c));
    add(padded(x));
    for (const Tensor& direction : along.unbind(0)) add(padded(direction));
    if (gb.defined()) {
      check("gb", gb, {nodes_, shape_.b, shape_.channels});
      add(padded(gb));
    }
  }

  // Run the kernel, and return B or gx.
  Tensor run() {
    Tensor out = at::empty({nodes_, of_x_ ? shape_.x : shape_.b, shape_.padded()}, options_);
    add(out);
    if (by_block_) add(at::zeros_like(tensors_[0]));
    const Groups groups(numbers_.const_data_ptr<int64_t>(), nodes_, tensors_[0].size(0), by_block_ ? 0 : GROUP_NODES);
    contract(kernel_.address, shape_, by_block_, groups, addresses_, [](int64_t count, const auto& function) {
      at::parallel_for(0, count, 1, function);
    });
    return cut(out);
  }

  // Return gc after `run`.
  Tensor gradient_of_c() {
    Tensor gc = at::empty({tensors_[0].size(0), shape_.terms, shape_.channels}, options_);
    copy_coefficients(shape_, gc.data_ptr(), tensors_.back().data_ptr(), gc.size(0), gc.element_size(), false);
    return gc;
  }

 private:
  void check(const char* name, const Tensor& tensor, const std::vector<int64_t>& expected) const {
    TORCH_CHECK(tensor.scalar_type() == options_.dtype().toScalarType(), name, ": expected ", options_.dtype(),
                ", as x has, found ", tensor.scalar_type());
    TORCH_CHECK(tensor.sizes() == at::IntArrayRef(expected), name, ": expected shape ", at::IntArrayRef(expected),
                ", found ", tensor.sizes());
  }

  void add(const Tensor& tensor) {
    tensors_.push_back(tensor);
    addresses_.push_back(address_of(tensor));
  }

  Tensor packed(const Tensor& c) const {
    const Tensor plain = c.contiguous();
    Tensor result = at::empty({c.size(0), shape_.blocks(), shape_.terms, shape_.lanes}, options_);
    copy_coefficients(shape_, plain.data_ptr(), result.data_ptr(), c.size(0), c.element_size(), true);
    return result;
  }

  Tensor padded(const Tensor& tensor) const {
    const Tensor plain = tensor.contiguous();
    return shape_.padded() == shape_.channels ? plain : resized(plain, shape_.padded());
  }

  Tensor cut(const Tensor& tensor) const {
    return shape_.padded() == shape_.channels ? tensor : resized(tensor, shape_.channels);
  }

  Tensor resized(const Tensor& tensor, int64_t channels) const {
    Tensor result = at::empty({tensor.size(0), tensor.size(1), channels}, options_);
    copy_rows(tensor.data_ptr(), tensor.size(2), result.data_ptr(), channels, tensor.size(0) * tensor.size(1),
              tensor.element_size());
    return result;
  }

  at::TensorOptions options_;
  int64_t nodes_;
  Tensor numbers_;
  bool of_x_, by_block_;
  Kernel kernel_;
  Contraction shape_;
  std::vector<Tensor> tensors_;
  Parameters addresses_;
};

inline Tensor contraction_value(const Tensor& c, const Tensor& x, const Tensor& along, const Tensor& elements,
                                std::string_view problem) {
  return ContractionCall("value", c, x, along, Tensor(), elements, problem).run();
}

inline std::tuple<Tensor, Tensor> contraction_gradient(const Tensor& c, const Tensor& x, const Tensor& along,
                                                       const Tensor& gb, const Tensor& elements,
                                                       std::string_view problem, bool of_c) {
  ContractionCall call(of_c ? "gradients" : "gradient", c, x, along, gb, elements, problem);
  Tensor gx = call.run();
  return {gx, of_c ? call.gradient_of_c() : at::empty({0}, x.options())};
}

// Calls of both operators for the same nodes, as in contraction_derivatives.py.
struct ContractionCalls {
  Tensor elements;
  std::string problem;

  Tensor value(const Tensor& c, const Tensor& x, const Tensor& along) const {
    static const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow("trnqc::cg_contraction_value", "").typed<Value>();
    return op.call(c, x, along, elements, problem);
  }

  std::tuple<Tensor, Tensor> gradient(const Tensor& c, const Tensor& x, const Tensor& along, const Tensor& gb,
                                      bool of_c = false) const {
    static const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow("trnqc::cg_contraction_gradient", "").typed<Gradient>();
    return op.call(c, x, along, gb, elements, problem, of_c);
  }

  // The gradients with respect to each direction; `more` is a constant direction, if it is defined.
  Tensor of_directions(const Tensor& c, const Tensor& x, const Tensor& along, const Tensor& gb,
                       const Tensor& more = Tensor()) const {
    if (!along.size(0)) return at::zeros_like(along);
    std::vector<Tensor> results;
    for (int64_t n = 0; n < along.size(0); ++n) {
      std::vector<Tensor> rest{along.slice(0, 0, n), along.slice(0, n + 1)};
      if (more.defined()) rest.push_back(more.unsqueeze(0));
      results.push_back(std::get<0>(gradient(c, x, at::cat(rest), gb)));
    }
    return at::stack(results);
  }
};

inline Tensor sum_of(const Tensor& a, const Tensor& b) { return !a.defined() ? b : !b.defined() ? a : at::add(a, b); }

struct DifferentiableValue : torch::autograd::Function<DifferentiableValue> {
  static Tensor forward(AutogradContext* ctx, const Tensor& c, const Tensor& x, const Tensor& along,
                        const Tensor& elements, const std::string& problem) {
    at::AutoDispatchBelowADInplaceOrView below;
    ctx->save_for_backward({c, x, along, elements});
    ctx->saved_data["problem"] = problem;
    return ContractionCalls{elements, problem}.value(c, x, along);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const ContractionCalls calls{saved[3], ctx->saved_data["problem"].toStringRef()};
    const bool of_c = ctx->needs_input_grad(0);
    auto [gx, gc] = calls.gradient(saved[0], saved[1], saved[2], gradients[0], of_c);
    const Tensor galong = ctx->needs_input_grad(2) ? calls.of_directions(saved[0], saved[1], saved[2], gradients[0])
                                                   : Tensor();
    return {of_c ? gc : Tensor(), gx, galong, Tensor(), Tensor()};
  }
};

struct DifferentiableGradient : torch::autograd::Function<DifferentiableGradient> {
  static variable_list forward(AutogradContext* ctx, const Tensor& c, const Tensor& x, const Tensor& along,
                               const Tensor& gb, const Tensor& elements, const std::string& problem, bool of_c) {
    at::AutoDispatchBelowADInplaceOrView below;
    ctx->save_for_backward({c, x, along, gb, elements});
    ctx->saved_data["problem"] = problem;
    ctx->set_materialize_grads(false);
    auto [gx, gc] = ContractionCalls{elements, problem}.gradient(c, x, along, gb, of_c);
    return {gx, gc};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& cotangents) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &c = saved[0], &x = saved[1], &along = saved[2], &gb = saved[3];
    const ContractionCalls calls{saved[4], ctx->saved_data["problem"].toStringRef()};
    const Tensor &u = cotangents[0], &v = cotangents[1];
    const bool of_c = ctx->needs_input_grad(0), of_along = ctx->needs_input_grad(2);
    Tensor to_c, to_x, to_along, to_gb;
    if (u.defined()) {
      const Tensor further = at::cat({along, u.unsqueeze(0)});
      auto [gx, gc] = calls.gradient(c, x, further, gb, of_c);
      to_x = gx;
      if (of_c) to_c = gc;
      if (of_along) to_along = calls.of_directions(c, x, along, gb, u);
      to_gb = calls.value(c, x, further);
    }
    // Without gradients of c, `v` is that of an empty tensor.
    if (v.defined() && v.numel()) {
      to_x = sum_of(to_x, std::get<0>(calls.gradient(v, x, along, gb)));
      if (of_along) to_along = sum_of(to_along, calls.of_directions(v, x, along, gb));
      to_gb = sum_of(to_gb, calls.value(v, x, along));
    }
    return {to_c, to_x, to_along, to_gb, Tensor(), Tensor(), Tensor()};
  }
};

inline Tensor differentiable_value(const Tensor& c, const Tensor& x, const Tensor& along, const Tensor& elements,
                                   std::string_view problem) {
  return DifferentiableValue::apply(c, x, along, elements, std::string(problem));
}

inline std::tuple<Tensor, Tensor> differentiable_gradient(const Tensor& c, const Tensor& x, const Tensor& along,
                                                          const Tensor& gb, const Tensor& elements,
                                                          std::string_view problem, bool of_c) {
  const auto results = DifferentiableGradient::apply(c, x, along, gb, elements, std::string(problem), of_c);
  return {results[0], results[1]};
}

}  // namespace trnqc
