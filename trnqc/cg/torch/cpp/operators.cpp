// The operators of trnqc.cg for programs without Python: TorchScript, and what torch.export and AOTInductor write.
//
// They have the names and schemas of trnqc/cg/torch/operators.py, and derivatives of the first and second order.
// The kernels are loaded from the folder of this library (kernels.h). Where Python has registered the operators already,
// this library registers nothing.
#include "contractions.h"
#include "products.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

namespace trnqc {

// An operator: its schema, its computation on the CPU, and the operator that returns its gradients. The arguments of
// the latter are the tensors of the former, the gradients of its results, and the rest of its arguments.
struct Operator {
  std::string name, schema;
  size_t tensors, results;
  void (*compute)(const Operator&, torch::jit::Stack&);
  std::string gradient;
};

static std::string returned(size_t results) {
  std::string text = "Tensor";
  for (size_t n = 1; n < results; ++n) text += ", Tensor";
  return results == 1 ? text : "(" + text + ")";
}

static std::vector<Operator> operators() {
  const std::string edges = ", Tensor rows, Tensor cols, str problem, bool deterministic, bool kahan)";
  const std::string rest[] = {", str problem)", edges};
  const std::string prefixes[] = {"cg", "cg_conv"};
  std::vector<Operator> all;
  for (int conv = 0; conv < 2; ++conv)
    for (const Direction& direction : DIRECTIONS) {
      std::string schema = "(";
      for (size_t n = 0; n < direction.reads.size(); ++n) schema += (n ? ", Tensor " : "Tensor ") + direction.reads[n];
      schema += rest[conv] + " -> " + returned(direction.writes.size());
      const auto prefix = prefixes[conv] + "_";
      all.push_back({prefix + direction.name, prefix + direction.name + schema, direction.reads.size(),
                     direction.writes.size(),
                     conv ? [](const Operator& op, torch::jit::Stack& s) { convolve(op.name.substr(8), s); }
                          : [](const Operator& op, torch::jit::Stack& s) { multiply(op.name.substr(3), s); },
                     direction.gradient.empty() ? "" : prefix + direction.gradient});
    }
  return all;
}

static const Operator& operator_of(const std::string& qualified) {
  static const std::vector<Operator> all = operators();
  for (const Operator& op : all)
    if (qualified == "trnqc::" + op.name) return op;
  TORCH_CHECK(false, "trnqc: unknown operator ", qualified);
}

static void compute(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const Operator& op = operator_of(handle.schema().name());
  op.compute(op, *stack);
}

static variable_list call(const std::string& name, torch::jit::Stack stack) {
  c10::Dispatcher::singleton().findSchemaOrThrow(("trnqc::" + name).c_str(), "").callBoxed(stack);
  variable_list results;
  for (auto& value : stack) results.push_back(value.toTensor());
  return results;
}

// The arguments of a call that are not differentiated.
struct Constants {
  const Operator* op;
  torch::jit::Stack rest;
};

struct Differentiable : torch::autograd::Function<Differentiable> {
  static variable_list forward(AutogradContext* ctx, const Constants& constants, at::TensorList tensors) {
    at::AutoDispatchBelowADInplaceOrView below;
    ctx->save_for_backward(tensors.vec());
    ctx->saved_data["operator"] = constants.op->name;
    ctx->saved_data["count"] = static_cast<int64_t>(constants.rest.size());
    for (size_t n = 0; n < constants.rest.size(); ++n) ctx->saved_data[std::to_string(n)] = constants.rest[n];
    torch::jit::Stack stack(tensors.begin(), tensors.end());
    stack.insert(stack.end(), constants.rest.begin(), constants.rest.end());
    return call(constants.op->name, std::move(stack));
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const Operator& op = operator_of("trnqc::" + ctx->saved_data["operator"].toStringRef());
    TORCH_CHECK(!op.gradient.empty(), "trnqc: outside Python, tensor products have derivatives up to the second order");
    const variable_list tensors = ctx->get_saved_variables();
    torch::jit::Stack stack(tensors.begin(), tensors.end());
    stack.insert(stack.end(), gradients.begin(), gradients.end());
    for (int64_t n = 0; n < ctx->saved_data["count"].toInt(); ++n) stack.push_back(ctx->saved_data[std::to_string(n)]);
    variable_list results = call(op.gradient, std::move(stack));
    // The argument `constants` has no gradient.
    results.insert(results.begin(), at::Tensor());
    return results;
  }
};

static void differentiate(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  Constants constants{&operator_of(handle.schema().name()), {}};
  const size_t arguments = handle.schema().arguments().size();
  const auto first = stack->end() - static_cast<int64_t>(arguments);
  const auto cut = first + static_cast<int64_t>(constants.op->tensors);
  variable_list tensors;
  for (auto value = first; value != cut; ++value) tensors.push_back(value->toTensor());
  constants.rest.assign(cut, stack->end());
  stack->erase(first, stack->end());
  for (auto& result : Differentiable::apply(constants, at::TensorList(tensors))) stack->emplace_back(std::move(result));
}

static void register_contractions(torch::Library& library) {
  const std::string operands = "(Tensor c, Tensor x, Tensor along, ", rest = "Tensor elements, str problem";
  library.def(("cg_contraction_value" + operands + rest + ") -> Tensor").c_str());
  library.def(("cg_contraction_gradient" + operands + "Tensor gb, " + rest + ", bool of_c) -> (Tensor, Tensor)").c_str());
  library.impl("cg_contraction_value", c10::DispatchKey::CPU, TORCH_FN(contraction_value));
  library.impl("cg_contraction_value", c10::DispatchKey::Autograd, TORCH_FN(differentiable_value));
  library.impl("cg_contraction_gradient", c10::DispatchKey::CPU, TORCH_FN(contraction_gradient));
  library.impl("cg_contraction_gradient", c10::DispatchKey::Autograd, TORCH_FN(differentiable_gradient));
}

static void register_operators(torch::Library& library) {
  if (c10::Dispatcher::singleton().findSchema({"trnqc::cg_forward", ""})) return;
  register_contractions(library);
  for (const Operator& op : operators()) {
    library.def(op.schema.c_str());
    library.impl(op.name.c_str(), c10::DispatchKey::CPU, torch::CppFunction::makeFromBoxedFunction<&compute>());
    library.impl(op.name.c_str(), c10::DispatchKey::Autograd,
                 torch::CppFunction::makeFromBoxedFunction<&differentiate>());
  }
}

}  // namespace trnqc

TORCH_LIBRARY_FRAGMENT(trnqc, library) { trnqc::register_operators(library); }
