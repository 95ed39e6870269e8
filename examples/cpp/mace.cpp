// Energies, forces and the virial of a structure by a prepared MACE model, without Python and PyTorch.
//
//     mace FOLDER STRUCTURE [THREADS]
//
// `python -m examples.prepare_mace` writes both, and prints what this program prints. Neighbours are found by trying all
// pairs of atoms and images, which is enough for a few hundred atoms.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "trnqc_mace.h"

struct Atoms {
  double cell[3][3];
  int periodic[3];
  std::vector<int32_t> numbers;
  std::vector<double> positions;
};

struct Neighbours {
  std::vector<int64_t> receivers, senders;
  std::vector<double> vectors;
};

static Atoms read_atoms(const std::string& path) {
  std::ifstream file(path);
  size_t count = 0;
  Atoms atoms;
  file >> count;
  for (int n = 0; n < 3; ++n) file >> atoms.cell[n][0] >> atoms.cell[n][1] >> atoms.cell[n][2] >> atoms.periodic[n];
  atoms.numbers.resize(count);
  atoms.positions.resize(3 * count);
  for (size_t n = 0; n < count; ++n) {
    file >> atoms.numbers[n];
    for (int k = 0; k < 3; ++k) file >> atoms.positions[3 * n + k];
  }
  if (!file) throw std::runtime_error(path + ": expected a number of atoms, three cell vectors, and the atoms");
  return atoms;
}

// The number of images along each cell vector that can be within the cutoff distance: cutoff over the distance of planes.
static void images(const Atoms& atoms, double cutoff, double size, int* most) {
  for (int n = 0; n < 3; ++n) {
    const double *a = atoms.cell[(n + 1) % 3], *b = atoms.cell[(n + 2) % 3], *c = atoms.cell[n];
    const double normal[3] = {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]};
    const double volume = std::fabs(normal[0] * c[0] + normal[1] * c[1] + normal[2] * c[2]);
    const double area = std::hypot(normal[0], normal[1], normal[2]);
    if (atoms.periodic[n] && !(volume > 0)) throw std::runtime_error("the cell vectors are linearly dependent");
    most[n] = atoms.periodic[n] ? static_cast<int>(std::ceil((cutoff + size) * area / volume)) : 0;
  }
}

static Neighbours neighbours(const Atoms& atoms, double cutoff) {
  const size_t count = atoms.numbers.size();
  const std::vector<double>& r = atoms.positions;
  double size = 0;
  for (size_t n = 0; n < 3 * count; ++n) size = std::fmax(size, 2 * std::fabs(r[n]));
  int most[3];
  images(atoms, cutoff, size, most);
  Neighbours list;
  for (size_t i = 0; i < count; ++i)
    for (size_t j = 0; j < count; ++j)
      for (int a = -most[0]; a <= most[0]; ++a)
        for (int b = -most[1]; b <= most[1]; ++b)
          for (int c = -most[2]; c <= most[2]; ++c) {
            double v[3];
            for (int k = 0; k < 3; ++k)
              v[k] = r[3 * i + k] - r[3 * j + k] - a * atoms.cell[0][k] - b * atoms.cell[1][k] - c * atoms.cell[2][k];
            if ((i == j && !a && !b && !c) || std::hypot(v[0], v[1], v[2]) >= cutoff) continue;
            list.receivers.push_back(static_cast<int64_t>(i));
            list.senders.push_back(static_cast<int64_t>(j));
            list.vectors.insert(list.vectors.end(), v, v + 3);
          }
  return list;
}

static void show(const char* name, const double* values, size_t count) {
  std::printf("%s", name);
  for (size_t n = 0; n < count; ++n) std::printf(" %.12g", values[n]);
  std::printf("\n");
}

static void check(int status) {
  if (status != TRNQC_MACE_OK) throw std::runtime_error(trnqc_mace_error());
}

static void run(const std::string& folder, const std::string& path, int threads) {
  const Atoms atoms = read_atoms(path);
  const size_t count = atoms.numbers.size();
  trnqc_mace* model;
  check(trnqc_mace_open(folder.c_str(), threads, &model));
  const Neighbours list = neighbours(atoms, trnqc_mace_cutoff(model));
  std::vector<double> energies(count), forces(3 * count);
  trnqc_mace_structure structure = {};
  structure.atoms = static_cast<int64_t>(count);
  structure.numbers = atoms.numbers.data();
  structure.pairs = static_cast<int64_t>(list.receivers.size());
  structure.receivers = list.receivers.data();
  structure.senders = list.senders.data();
  structure.vectors = list.vectors.data();
  trnqc_mace_result result = {};
  result.energies = energies.data();
  result.forces = forces.data();
  const int status = trnqc_mace_evaluate(model, &structure, &result);
  trnqc_mace_close(model);
  check(status);
  show("energy", &result.energy, 1);
  show("energies", energies.data(), count);
  show("forces", forces.data(), 3 * count);
  show("virial", result.virial, 9);
}

int main(int count, char** arguments) {
  if (count != 3 && count != 4) {
    std::fprintf(stderr, "usage: %s FOLDER STRUCTURE [THREADS]\n", arguments[0]);
    return 2;
  }
  try {
    run(arguments[1], arguments[2], count == 4 ? std::atoi(arguments[3]) : 1);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
