// A pair style of LAMMPS for prepared MACE models, without Python and PyTorch.
//
//     plugin load trnqcmaceplugin.so
//     pair_style trnqc/mace FOLDER [threads N]
//     pair_coeff * * Cu O                          one element for each type of atom
//
// FOLDER is one that `trnqc mace MODEL --folder FOLDER` has written. Units are "metal". Atoms of other processes, and
// periodic images, are copies (ghosts), whose features LAMMPS communicates between the layers of the model. Neighbours of
// neighbours are therefore not needed, and copies reach as far as the cutoff distance of one layer.

#include <cstring>
#include <string>
#include <vector>

#include "atom.h"
#include "comm.h"
#include "error.h"
#include "force.h"
#include "lammps.h"
#include "memory.h"
#include "neigh_list.h"
#include "neighbor.h"
#include "pair.h"
#include "update.h"
#include "utils.h"

#include "trnqc_mace.h"

using namespace LAMMPS_NS;

static const std::vector<std::string> SYMBOLS = {
    "H",  "He", "Li", "Be", "B",  "C",  "N",  "O",  "F",  "Ne", "Na", "Mg", "Al", "Si", "P",  "S",  "Cl", "Ar", "K",  "Ca",
    "Sc", "Ti", "V",  "Cr", "Mn", "Fe", "Co", "Ni", "Cu", "Zn", "Ga", "Ge", "As", "Se", "Br", "Kr", "Rb", "Sr", "Y",  "Zr",
    "Nb", "Mo", "Tc", "Ru", "Rh", "Pd", "Ag", "Cd", "In", "Sn", "Sb", "Te", "I",  "Xe", "Cs", "Ba", "La", "Ce", "Pr", "Nd",
    "Pm", "Sm", "Eu", "Gd", "Tb", "Dy", "Ho", "Er", "Tm", "Yb", "Lu", "Hf", "Ta", "W",  "Re", "Os", "Ir", "Pt", "Au", "Hg",
    "Tl", "Pb", "Bi", "Po", "At", "Rn", "Fr", "Ra", "Ac", "Th", "Pa", "U",  "Np", "Pu", "Am", "Cm", "Bk", "Cf", "Es", "Fm"};

class PairTrnqcMace : public Pair {
 public:
  explicit PairTrnqcMace(LAMMPS* lmp) : Pair(lmp) {
    single_enable = 0;
    restartinfo = 0;
    one_coeff = 1;
    manybody_flag = 1;
    // The virial follows from the gradients of pairs, not from forces and positions.
    no_virial_fdotr_compute = 1;
    centroidstressflag = CENTROID_NOTAVAIL;
  }

  ~PairTrnqcMace() override {
    trnqc_mace_close(model_);
    if (allocated) {
      memory->destroy(setflag);
      memory->destroy(cutsq);
    }
  }

  void settings(int count, char** words) override {
    int threads = 1;
    if (count == 3 && !std::strcmp(words[1], "threads")) {
      threads = utils::inumeric(FLERR, words[2], false, lmp);
    } else if (count != 1) {
      error->all(FLERR, "expected pair_style trnqc/mace FOLDER [threads N]");
    }
    trnqc_mace_close(model_);
    check(trnqc_mace_open(words[0], threads, &model_));
    // LAMMPS communicates numbers of eight bytes.
    comm_forward = comm_reverse = static_cast<int>((trnqc_mace_row_bytes(model_) + 7) / 8);
  }

  void coeff(int count, char** words) override {
    const int types = atom->ntypes;
    if (count != 2 + types || std::strcmp(words[0], "*") || std::strcmp(words[1], "*"))
      error->all(FLERR, "expected pair_coeff * * and an element for each of the types of atoms");
    if (!allocated) {
      memory->create(setflag, types + 1, types + 1, "pair:setflag");
      memory->create(cutsq, types + 1, types + 1, "pair:cutsq");
      allocated = 1;
    }
    numbers_of_types_.assign(types + 1, 0);
    for (int type = 1; type <= types; ++type) {
      for (size_t n = 0; n < SYMBOLS.size(); ++n)
        if (SYMBOLS[n] == words[1 + type]) numbers_of_types_[type] = static_cast<int32_t>(n) + 1;
      if (!trnqc_mace_has_element(model_, numbers_of_types_[type]))
        error->all(FLERR, std::string("pair_coeff: the model does not have the element ") + words[1 + type]);
      for (int other = 1; other <= types; ++other) setflag[type][other] = 1;
    }
  }

  void init_style() override {
    if (!force->newton_pair) error->all(FLERR, "pair style trnqc/mace needs newton on");
    if (std::strcmp(update->unit_style, "metal")) error->all(FLERR, "pair style trnqc/mace needs units metal");
    const double *lj = force->special_lj, *coulomb = force->special_coul;
    for (int n = 1; n < 4; ++n)
      if (atom->nbonds && !lj[n] && !coulomb[n])
        error->all(FLERR, "pair style trnqc/mace needs bonded neighbors: set special_bonds lj/coul 1.0 1.0 1.0");
    if (neighbor->nex_type || neighbor->nex_group || neighbor->nex_mol || neighbor->includegroup)
      error->all(FLERR, "pair style trnqc/mace needs all neighbors: remove neigh_modify exclude or include");
    neighbor->add_request(this, NeighConst::REQ_FULL);
  }

  double init_one(int, int) override { return trnqc_mace_cutoff(model_); }

  void compute(int eflag, int vflag) override {
    ev_init(eflag, vflag);
    const int local = atom->nlocal, copies = atom->nghost;
    collect(local + copies);
    energies_.resize(local);
    forces_.resize(3 * static_cast<size_t>(local + copies));
    trnqc_mace_structure structure = {};
    structure.atoms = local;
    structure.copies = copies;
    structure.numbers = numbers_.data();
    structure.pairs = static_cast<int64_t>(receivers_.size());
    structure.receivers = receivers_.data();
    structure.senders = senders_.data();
    structure.vectors = vectors_.data();
    structure.exchange = exchange;
    structure.context = this;
    trnqc_mace_result result = {};
    result.energies = energies_.data();
    result.forces = forces_.data();
    if (vflag_atom) {
      virials_.resize(9 * static_cast<size_t>(local + copies));
      result.virials = virials_.data();
    }
    check(trnqc_mace_evaluate(model_, &structure, &result));
    for (int i = 0; i < local + copies; ++i)
      for (int k = 0; k < 3; ++k) atom->f[i][k] += forces_[3 * i + k];
    if (eflag_global) eng_vdwl += result.energy;
    if (eflag_atom)
      for (int i = 0; i < local; ++i) eatom[i] += energies_[i];
    if (vflag_global) add_virial(result.virial, virial);
    // LAMMPS adds what it has for copies to their atoms.
    if (vflag_atom)
      for (int i = 0; i < local + copies; ++i) add_virial(&virials_[9 * static_cast<size_t>(i)], vatom[i]);
  }

  int pack_forward_comm(int count, int* list, double* buffer, int, int*) override {
    for (int n = 0; n < count; ++n) std::memcpy(buffer + n * comm_forward, row(list[n]), row_bytes_);
    return count * comm_forward;
  }

  void unpack_forward_comm(int count, int first, double* buffer) override {
    for (int n = 0; n < count; ++n) std::memcpy(row(first + n), buffer + n * comm_forward, row_bytes_);
  }

  int pack_reverse_comm(int count, int first, double* buffer) override {
    for (int n = 0; n < count; ++n) std::memcpy(buffer + n * comm_reverse, row(first + n), row_bytes_);
    return count * comm_reverse;
  }

  void unpack_reverse_comm(int count, int* list, double* buffer) override {
    for (int n = 0; n < count; ++n) {
      if (element_bytes_ == 4) {
        add<float>(row(list[n]), buffer + n * comm_reverse);
      } else {
        add<double>(row(list[n]), buffer + n * comm_reverse);
      }
    }
  }

 private:
  void check(int status) {
    if (status != TRNQC_MACE_OK) error->one(FLERR, std::string("trnqc/mace: ") + trnqc_mace_error());
  }

  // Add xx, yy, zz, xy, xz, yz of a derivative by the strain, of which LAMMPS wants the negative.
  static void add_virial(const double* tensor, double* sum) {
    const int order[6] = {0, 4, 8, 1, 2, 5};
    for (int n = 0; n < 6; ++n) sum[n] -= tensor[order[n]];
  }

  // Numbers of all atoms, and all pairs of the neighbour list.
  void collect(int total) {
    numbers_.resize(total);
    for (int i = 0; i < total; ++i) numbers_[i] = numbers_of_types_[atom->type[i]];
    receivers_.clear();
    senders_.clear();
    vectors_.clear();
    for (int n = 0; n < list->inum; ++n) {
      const int i = list->ilist[n];
      for (int m = 0; m < list->numneigh[i]; ++m) {
        const int j = list->firstneigh[i][m] & NEIGHMASK;
        receivers_.push_back(i);
        senders_.push_back(j);
        for (int k = 0; k < 3; ++k) vectors_.push_back(atom->x[i][k] - atom->x[j][k]);
      }
    }
  }

  static void exchange(void* context, int reverse, void* rows, int64_t row_bytes, int element_bytes,
                       const int64_t* row_of) {
    auto* pair = static_cast<PairTrnqcMace*>(context);
    pair->rows_ = static_cast<char*>(rows);
    pair->row_bytes_ = row_bytes;
    pair->element_bytes_ = element_bytes;
    pair->row_of_ = row_of;
    if (reverse) {
      pair->comm->reverse_comm(pair);
    } else {
      pair->comm->forward_comm(pair);
    }
  }

  char* row(int atom_or_copy) const { return rows_ + row_bytes_ * row_of_[atom_or_copy]; }

  template <typename Number>
  void add(char* target, const double* source) const {
    auto* to = reinterpret_cast<Number*>(target);
    const auto* from = reinterpret_cast<const Number*>(source);
    for (size_t n = 0; n < row_bytes_ / sizeof(Number); ++n) to[n] += from[n];
  }

  trnqc_mace* model_ = nullptr;
  std::vector<int32_t> numbers_of_types_, numbers_;
  std::vector<int64_t> receivers_, senders_;
  std::vector<double> vectors_, energies_, forces_, virials_;
  // The rows that are being exchanged.
  char* rows_ = nullptr;
  int64_t row_bytes_ = 0;
  int element_bytes_ = 8;
  const int64_t* row_of_ = nullptr;
};

// What LAMMPS's plugin loader expects (Programmer guide, "Plugins"); its header is not among the installed ones.
struct Plugin {
  const char *version, *style, *name, *info, *author;
  void* (*create)(LAMMPS*);
  void* handle;
};

extern "C" void lammpsplugin_init(void* lammps, void* handle, void* enter) {
  Plugin plugin = {static_cast<LAMMPS*>(lammps)->version, "pair", "trnqc/mace",
                   "MACE models by trnqc", "trnqc", [](LAMMPS* lmp) -> void* { return new PairTrnqcMace(lmp); }, handle};
  reinterpret_cast<void (*)(Plugin*, void*)>(enter)(&plugin, lammps);
}
