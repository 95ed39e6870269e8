// Errors with a kind, which becomes the status of a function of the C interface.
#pragma once

#include <stdexcept>
#include <string>

#include "trnqc_mace.h"

namespace trnqc::mace {

struct Failure : std::runtime_error {
  int kind;
  Failure(int kind, const std::string& message) : std::runtime_error(message), kind(kind) {}
};

}  // namespace trnqc::mace
