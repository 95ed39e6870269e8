// The folder of compiled kernels that lies beside this library: its index, the check of the CPU, loading by key.
//
// The file `index` has one line of header and one line for each kernel, with fields that are separated by tabs:
//
//     trnqc-kernels  2  machine  features of the CPU, separated by spaces
//     kernel  dtype  file  five sizes of the problem  problem as text
//
// The sizes of a tensor product are d1, d2, d3, the number of weights, and whether weights are shared (0 or 1); those of
// a symmetric contraction are the members of `Contraction`. trnqc.cg.torch.cpp.folder writes the file.
#pragma once

#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <unordered_map>

#include <c10/util/Exception.h>

#include "contraction.h"
#include "cpu.h"

namespace trnqc {

// A tensor product as the operators need it: row lengths of x, y, z and w, and whether all rows have the same weights.
struct Problem {
  int64_t x, y, z, w;
  bool shared_weights;

  int64_t row_length(char kind) const { return kind == 'x' ? x : kind == 'y' ? y : kind == 'z' ? z : w; }
};

struct Kernel {
  std::array<int64_t, 5> sizes;
  std::string file, function;
  // The address of the function, once its file is loaded.
  void* address = nullptr;

  Problem problem() const { return {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4] != 0}; }
  Contraction contraction() const { return {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]}; }
};

// The folder of the shared library that contains this function.
inline std::string own_folder() {
  Dl_info info;
  TORCH_CHECK(dladdr(reinterpret_cast<void*>(&own_folder), &info) && info.dli_fname,
              "trnqc: the path of the library of operators is unknown");
  const std::string path = info.dli_fname;
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

class Folder {
 public:
  explicit Folder(std::string path) : path_(std::move(path)) {
    std::ifstream index(path_ + "/index");
    TORCH_CHECK(index, "trnqc: expected the index of the kernels at ", path_,
                "/index; write it by trnqc.cg.write_kernels(model, folder)");
    std::string line;
    std::getline(index, line);
    read_header(line);
    while (std::getline(index, line)) read_kernel(line);
  }

  // Return a kernel, and load its file if this is the first call. `kernel.address` is set.
  const Kernel& get(const std::string& name, const std::string& dtype, const std::string& problem) {
    std::lock_guard<std::mutex> guard(mutex_);
    const auto entry = kernels_.find(key(name, dtype, problem));
    TORCH_CHECK(entry != kernels_.end(), "trnqc: ", path_, " has no kernel ", name, " in ", dtype,
                " for the problem ", problem.substr(0, 200),
                "; write it by trnqc.cg.write_kernels(model, folder), with training=True for derivatives of weights and "
                "second derivatives");
    Kernel& kernel = entry->second;
    if (!kernel.address) kernel.address = loaded(kernel);
    return kernel;
  }

 private:
  static std::string key(const std::string& name, const std::string& dtype, const std::string& problem) {
    return name + '\t' + dtype + '\t' + problem;
  }

  void read_header(const std::string& line) {
    std::istringstream fields(line);
    std::string title, version, machine, feature;
    fields >> title >> version >> machine;
    TORCH_CHECK(title == "trnqc-kernels" && version == "2", "trnqc: ", path_,
                "/index: expected the header 'trnqc-kernels 2', found '", title, " ", version,
                "'; write the folder again with the release of trnqc that this library belongs to");
    TORCH_CHECK(machine == TRNQC_MACHINE, "trnqc: the kernels in ", path_, " are for ", machine, ", this machine is ",
                TRNQC_MACHINE);
    while (fields >> feature)
      TORCH_CHECK(cpu_has(feature), "trnqc: the kernels in ", path_, " need a CPU with ", feature,
                  ", which this machine does not have; write them on this machine");
  }

  void read_kernel(const std::string& line) {
    std::istringstream fields(line);
    std::string name, dtype, problem;
    Kernel kernel;
    fields >> name >> dtype >> kernel.file;
    for (int64_t& size : kernel.sizes) fields >> size;
    fields.get();
    std::getline(fields, problem);
    TORCH_CHECK(!fields.fail(), "trnqc: ", path_, "/index has a line that cannot be read: ", line.substr(0, 200));
    kernel.function = name;
    kernels_.emplace(key(name, dtype, problem), kernel);
  }

  void* loaded(const Kernel& kernel) const {
    const std::string file = path_ + "/" + kernel.file;
    void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    TORCH_CHECK(library, "trnqc: cannot load ", file, ": ", dlerror());
    void* address = dlsym(library, kernel.function.c_str());
    TORCH_CHECK(address, "trnqc: ", file, " has no function ", kernel.function);
    return address;
  }

  std::string path_;
  std::mutex mutex_;
  std::unordered_map<std::string, Kernel> kernels_;
};

// The folder beside this library. It is read at the first call, whose error is repeated by later calls.
inline Folder& kernels() {
  static Folder folder(own_folder());
  return folder;
}

}  // namespace trnqc
