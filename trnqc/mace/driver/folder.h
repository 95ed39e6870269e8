// The folder of a prepared model: the file of its program and weights, and the files of the kernels.
//
// All numbers of the file are int64 of this machine:
//
//     "TRNQMACE"  version  bytes of the file  CRC-32 of what follows
//     bytes of the text  words of the program  number of constants  bytes of each constant
//     the text, the program and each constant, each filled up to a multiple of 64 bytes from the beginning of the file
//
// The text has a line for the machine, one for the features of the CPU that kernels need, and one for each function:
//
//     machine x86_64
//     features avx avx2 fma
//     kernel FILE FUNCTION BYTES CRC-32
//
// trnqc/mace/driver/folder.py writes it.
#pragma once

#include <dlfcn.h>
#include <sys/utsname.h>

#include <array>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "cpu.h"
#include "program.h"

namespace trnqc::mace {

constexpr char MAGIC[] = "TRNQMACE";
constexpr int64_t FILE_VERSION = 1;
constexpr size_t ALIGNMENT = 64, HEADER = 7 * 8;
// The numbers of the header that the check sum does not cover, with the name of the format.
constexpr size_t UNCHECKED = 4 * 8;

// The CRC-32 of ISO-HDLC, as in zlib.
inline uint32_t crc32(const char* data, size_t size) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t n = 0; n < 256; ++n) {
      t[n] = n;
      for (int k = 0; k < 8; ++k) t[n] = t[n] & 1 ? 0xEDB88320u ^ (t[n] >> 1) : t[n] >> 1;
    }
    return t;
  }();
  uint32_t sum = ~0u;
  for (size_t n = 0; n < size; ++n) sum = table[(sum ^ static_cast<unsigned char>(data[n])) & 255] ^ (sum >> 8);
  return ~sum;
}

struct Unload {
  void operator()(void* library) const { dlclose(library); }
};

class Folder {
 public:
  explicit Folder(const std::string& path) : path_(path) {
    const size_t size = read(path_ + "/model.trnqc", file_);
    const std::string text = parse(path_ + "/model.trnqc", size);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream fields(line);
      std::string key;
      fields >> key;
      if (key == "machine") check_machine(fields);
      if (key == "features") check_features(fields);
      if (key == "kernel") load(fields);
    }
  }

  Program program() const { return {words_, count_, constants_, functions_}; }

 private:
  // Read a whole file, and return its size.
  static size_t read(const std::string& file, Block& block) {
    std::ifstream stream(file, std::ios::binary | std::ios::ate);
    if (!stream) throw Failure(TRNQC_MACE_FILE, file + ": cannot be read; prepare the model again");
    const auto size = static_cast<size_t>(stream.tellg());
    block.reserve(size);
    stream.seekg(0);
    if (!stream.read(block.data(), static_cast<std::streamsize>(size)))
      throw Failure(TRNQC_MACE_FILE, file + ": cannot be read; prepare the model again");
    return size;
  }

  std::string parse(const std::string& file, size_t size) {
    const auto damaged = [&](const std::string& what) {
      return Failure(TRNQC_MACE_FILE, file + ": " + what + "; prepare the model again");
    };
    if (size < HEADER || std::memcmp(file_.data(), MAGIC, 8)) throw damaged("expected a prepared model, found another file");
    const auto* header = reinterpret_cast<const int64_t*>(file_.data());
    if (header[1] != FILE_VERSION)
      throw damaged("expected version " + std::to_string(FILE_VERSION) + ", found version " + std::to_string(header[1]));
    if (header[2] != static_cast<int64_t>(size))
      throw damaged("expected " + std::to_string(header[2]) + " bytes, found " + std::to_string(size));
    if (header[3] != crc32(file_.data() + UNCHECKED, size - UNCHECKED)) throw damaged("the check sum is wrong");
    size_t place = HEADER + 8 * static_cast<size_t>(header[6]);
    const auto part = [&](int64_t bytes) {
      place = (place + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
      const char* begin = file_.data() + place;
      if (bytes < 0 || place + static_cast<size_t>(bytes) > size) throw damaged("its parts exceed it");
      place += static_cast<size_t>(bytes);
      return begin;
    };
    const char* text = part(header[4]);
    words_ = reinterpret_cast<const int64_t*>(part(8 * header[5]));
    count_ = header[5];
    for (int64_t n = 0; n < header[6]; ++n) constants_.push_back(part(header[7 + n]));
    return {text, static_cast<size_t>(header[4])};
  }

  void check_machine(std::istringstream& fields) const {
    std::string expected;
    fields >> expected;
    utsname machine;
    if (!uname(&machine) && expected != machine.machine)
      throw Failure(TRNQC_MACE_MACHINE, path_ + ": the kernels are for " + expected + ", this machine is " +
                                            machine.machine + "; prepare the model on this machine");
  }

  // Whether this CPU has a feature; it has none that this library does not know.
  static bool has(const std::string& feature) {
    try {
      return cpu_has(feature);
    } catch (const std::invalid_argument&) {
      return false;
    }
  }

  void check_features(std::istringstream& fields) const {
    for (std::string feature; fields >> feature;)
      if (!has(feature))
        throw Failure(TRNQC_MACE_MACHINE, path_ + ": the kernels need a CPU with " + feature +
                                              ", which this machine does not have; prepare the model on this machine");
  }

  void load(std::istringstream& fields) {
    std::string name, function;
    size_t size = 0;
    uint32_t sum = 0;
    fields >> name >> function >> size >> sum;
    const std::string file = path_ + "/" + name;
    auto& library = libraries_[name];
    if (!library) {
      // A damaged library may end the process when it is loaded.
      Block bytes;
      if (read(file, bytes) != size || crc32(bytes.data(), size) != sum)
        throw Failure(TRNQC_MACE_FILE, file + ": the kernels are damaged; prepare the model again");
      library.reset(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL));
      if (!library) throw Failure(TRNQC_MACE_FILE, file + ": the kernels cannot be loaded: " + dlerror());
    }
    functions_.push_back(dlsym(library.get(), function.c_str()));
    if (!functions_.back()) throw Failure(TRNQC_MACE_FILE, file + ": has no function " + function);
  }

  std::string path_;
  Block file_;
  const int64_t* words_ = nullptr;
  int64_t count_ = 0;
  std::vector<const void*> constants_;
  std::vector<void*> functions_;
  std::map<std::string, std::unique_ptr<void, Unload>> libraries_;
};

}  // namespace trnqc::mace
