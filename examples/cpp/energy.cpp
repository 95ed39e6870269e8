// Energy, forces and stress of a MACE model with trnqc's kernels, without Python.
//
//     energy MODEL INPUTS LIBRARY
//
// MODEL is a TorchScript file (.pt) or a package of AOTInductor (.pt2), INPUTS the model's input tensors by name and
// LIBRARY the operators; `python -m examples.deploy_mace` writes all three.

#include <dlfcn.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/script.h>

using Results = std::vector<std::pair<std::string, at::Tensor>>;

// The inputs and results of the package, in the order of examples/deploy_mace.py.
static const std::vector<std::string> INPUTS = {"positions",   "node_attrs", "edge_index", "shifts",
                                                "unit_shifts", "cell",       "batch",      "ptr"};
static const std::vector<std::string> RESULTS = {"energy", "forces", "stress"};

static c10::impl::GenericDict read_inputs(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return torch::jit::pickle_load(bytes).toGenericDict();
}

static Results run_script(const std::string& path, const c10::impl::GenericDict& inputs) {
  c10::Dict<std::string, at::Tensor> data;
  for (const auto& entry : inputs) data.insert(entry.key().toStringRef(), entry.value().toTensor());
  auto model = torch::jit::load(path);
  const auto output = model.forward({data}, {{"compute_force", true}, {"compute_stress", true}}).toGenericDict();
  Results results;
  for (const auto& name : RESULTS) results.emplace_back(name, output.at(name).toTensor().detach());
  return results;
}

static Results run_package(const std::string& path, const c10::impl::GenericDict& inputs) {
  torch::inductor::AOTIModelPackageLoader model(path);
  std::vector<at::Tensor> operands;
  for (const auto& name : INPUTS) operands.push_back(inputs.at(name).toTensor());
  const auto output = model.run(operands);
  Results results;
  for (size_t n = 0; n < RESULTS.size(); ++n) results.emplace_back(RESULTS[n], output[n]);
  return results;
}

int main(int count, char** arguments) {
  if (count != 4) {
    std::fprintf(stderr, "usage: %s MODEL INPUTS LIBRARY\n", arguments[0]);
    return 2;
  }
  try {
    if (!dlopen(arguments[3], RTLD_NOW | RTLD_GLOBAL)) throw std::runtime_error(dlerror());
    const std::string path = arguments[1];
    const auto inputs = read_inputs(arguments[2]);
    const bool package = path.size() > 4 && path.substr(path.size() - 4) == ".pt2";
    for (const auto& [name, tensor] : package ? run_package(path, inputs) : run_script(path, inputs)) {
      const at::Tensor values = tensor.to(at::kDouble).reshape(-1);
      std::printf("%s", name.c_str());
      for (int64_t n = 0; n < values.numel(); ++n) std::printf(" %.17g", values[n].item<double>());
      std::printf("\n");
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
