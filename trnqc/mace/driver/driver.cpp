// The C interface of MACE models; trnqc_mace.h describes it.
//
// caller's structure -> sorted structure (structure.h) -> steps (program.h) -> energies, forces, virial

#include <memory>
#include <mutex>
#include <new>

#include "folder.h"
#include "program.h"
#include "structure.h"
#include "trnqc_mace.h"

using trnqc::mace::Elements;
using trnqc::mace::Failure;
using trnqc::mace::Folder;
using trnqc::mace::Program;
using trnqc::mace::Structure;

struct trnqc_mace {
  // The folder of a prepared model, which holds its weights and kernels; empty if the caller does.
  std::unique_ptr<Folder> folder;
  Program program;
  int threads;
  Structure structure;
  std::mutex mutex;

  trnqc_mace(std::unique_ptr<Folder> own, int threads)
      : folder(std::move(own)), program(folder->program()), threads(threads) {}
  trnqc_mace(Program borrowed, int threads) : program(std::move(borrowed)), threads(threads) {}
};

namespace {

thread_local std::string message;

// Call a function, and turn its exceptions into a status and a message.
template <typename Work>
int guarded(const Work& work) {
  try {
    work();
    return TRNQC_MACE_OK;
  } catch (const Failure& failure) {
    message = failure.what();
    return failure.kind;
  } catch (const std::bad_alloc&) {
    message = "no memory is left";
    return TRNQC_MACE_MEMORY;
  } catch (const std::exception& error) {
    message = error.what();
    return TRNQC_MACE_OTHER;
  }
}

void check_threads(int threads) {
  if (threads < 1) throw Failure(TRNQC_MACE_INPUT, "expected a positive number of threads, found " + std::to_string(threads));
}

// The symmetric part of a tensor.
void symmetrise(double* t) {
  for (int k = 0; k < 3; ++k)
    for (int l = 0; l < k; ++l) t[3 * k + l] = t[3 * l + k] = (t[3 * k + l] + t[3 * l + k]) / 2;
}

// Forces of the atoms, and virials, from the gradients with respect to the vectors.
void write(const trnqc_mace_structure& given, const Structure& s, const Program& program, trnqc_mace_result& result) {
  result.energy = 0;
  for (int64_t n = 0; n < given.atoms; ++n) {
    const double energy = program.energies()[s.row_of[n]];
    result.energy += energy;
    if (result.energies) result.energies[n] = energy;
  }
  if (result.forces) std::fill_n(result.forces, 3 * (given.atoms + given.copies), 0.0);
  if (result.pair_gradients) std::fill_n(result.pair_gradients, 3 * given.pairs, 0.0);
  if (result.virials) std::fill_n(result.virials, 9 * (given.atoms + given.copies), 0.0);
  std::fill_n(result.virial, 9, 0.0);
  for (int64_t edge = 0; edge < s.edges(); ++edge) {
    const int64_t pair = s.pairs[edge];
    const double *g = program.gradients() + 3 * edge, *v = s.vectors.data() + 3 * edge;
    for (int k = 0; k < 3; ++k) {
      if (result.forces) {
        result.forces[3 * given.receivers[pair] + k] -= g[k];
        result.forces[3 * given.senders[pair] + k] += g[k];
      }
      if (result.pair_gradients) result.pair_gradients[3 * pair + k] = g[k];
      for (int l = 0; l < 3; ++l) {
        const double part = v[k] * g[l];
        result.virial[3 * k + l] += part;
        if (result.virials)
          for (const int64_t end : {given.receivers[pair], given.senders[pair]})
            result.virials[9 * end + 3 * k + l] += part / 2;
      }
    }
  }
  symmetrise(result.virial);
  if (result.virials)
    for (int64_t n = 0; n < given.atoms + given.copies; ++n) symmetrise(result.virials + 9 * n);
}

}  // namespace

extern "C" {

// Make a model of a program whose constants and functions the caller keeps. trnqc/mace/driver/driver.py calls this.
int trnqc_mace_borrow(const int64_t* words, int64_t count, const void* const* constants, int64_t n_constants,
                      void* const* functions, int64_t n_functions, int threads, trnqc_mace** model) {
  *model = nullptr;
  return guarded([&] {
    check_threads(threads);
    std::vector<const void*> of_constants(constants, constants + n_constants);
    std::vector<void*> of_functions(functions, functions + n_functions);
    *model = new trnqc_mace(Program(words, count, std::move(of_constants), std::move(of_functions)), threads);
  });
}

int trnqc_mace_open(const char* folder, int threads, trnqc_mace** model) {
  *model = nullptr;
  return guarded([&] {
    check_threads(threads);
    *model = new trnqc_mace(std::make_unique<Folder>(folder), threads);
  });
}

void trnqc_mace_close(trnqc_mace* model) { delete model; }

double trnqc_mace_cutoff(const trnqc_mace* model) { return model->program.elements.cutoff; }

int trnqc_mace_has_element(const trnqc_mace* model, int32_t number) {
  return static_cast<int>(model->program.elements.places.count(number));
}

int64_t trnqc_mace_row_bytes(const trnqc_mace* model) { return model->program.row_bytes(); }

int trnqc_mace_evaluate(trnqc_mace* model, const trnqc_mace_structure* given, trnqc_mace_result* result) {
  return guarded([&] {
    const std::lock_guard<std::mutex> guard(model->mutex);
    if (given->copies && !given->exchange && model->program.row_bytes())
      throw Failure(TRNQC_MACE_INPUT, "a model with several layers needs the function `exchange` for copies of atoms");
    model->structure.set(*given, model->program.elements, model->threads, trnqc::mace::RANGE,
                         trnqc::mace::TILE);
    model->program.run(model->structure, *given, model->threads);
    write(*given, model->structure, model->program, *result);
  });
}

const char* trnqc_mace_error(void) { return message.c_str(); }

}  // extern "C"
