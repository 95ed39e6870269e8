/* MACE models in C: energies, forces and the virial of a structure, with a neighbour list of the caller's.
 *
 * `trnqc mace MODEL --folder FOLDER` writes this header, the library libtrnqc_mace.so, the compiled kernels and
 * the weights of a model to a folder. Lengths are in Angstrom and energies in eV. Functions that return int return
 * TRNQC_MACE_OK, or the kind of an error, whose message trnqc_mace_error() returns.
 */
#ifndef TRNQC_MACE_H
#define TRNQC_MACE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  TRNQC_MACE_OK = 0,
  TRNQC_MACE_INPUT = 1,     /* an argument or a structure that cannot be used */
  TRNQC_MACE_FILE = 2,      /* a file that is missing or damaged, or has another version */
  TRNQC_MACE_MACHINE = 3,   /* a folder that was prepared for another machine */
  TRNQC_MACE_MEMORY = 4,    /* no memory */
  TRNQC_MACE_OTHER = 5      /* anything else, such as threads that cannot be started */
};

/* An open model. Calls for one model wait for one another; different models may be used at the same time. */
typedef struct trnqc_mace trnqc_mace;

/* Exchange the rows of atoms with those of their copies, which other processes compute.
 *
 * `rows` has a row of `row_bytes` bytes for each atom and copy: number i of the structure has row `row_of[i]`. With
 * reverse == 0, write the row of each copy, which is that of the atom. With reverse != 0, add the row of each copy to
 * that of the atom, element by element. Elements have `element_bytes` bytes: 4 for float, 8 for double. A process calls
 * it whether or not it has copies, because other processes may have copies of its atoms. */
typedef void (*trnqc_mace_exchange)(void *context, int reverse, void *rows, int64_t row_bytes, int element_bytes,
                                    const int64_t *row_of);

/* Atoms have the numbers 0 to atoms - 1. Copies of atoms (ghosts) follow them; they send, but do not receive. */
typedef struct {
  int64_t atoms, copies;
  const int32_t *numbers;   /* atomic numbers [atoms + copies] */
  int64_t pairs;            /* all ordered pairs; those beyond the cutoff distance are left out */
  const int64_t *receivers; /* [pairs], below atoms */
  const int64_t *senders;   /* [pairs], below atoms + copies */
  const double *vectors;    /* position of the receiver minus that of the sender [pairs][3] */
  /* Needed by models that have more than one layer if any process has copies; NULL if none has. */
  trnqc_mace_exchange exchange;
  void *context;
} trnqc_mace_structure;

/* Arrays of the caller; each of them may be NULL. */
typedef struct {
  double *energies;       /* of the atoms [atoms] */
  double *forces;         /* [atoms + copies][3]; those of copies have to be added to those of their atoms */
  double *pair_gradients; /* derivative of the energy with respect to the vectors [pairs][3] */
  double energy;          /* the sum of the energies of the atoms */
  double virial[9];       /* derivative of the energy with respect to a symmetric strain */
  /* Contributions to the virial [atoms + copies][9]; half of that of a pair belongs to each of its ends. Those of copies
   * have to be added to those of their atoms. */
  double *virials;
} trnqc_mace_result;

/* Open the model in a folder, for a number of threads. *model is NULL if that fails. */
int trnqc_mace_open(const char *folder, int threads, trnqc_mace **model);
void trnqc_mace_close(trnqc_mace *model);

/* The cutoff distance of the model. */
double trnqc_mace_cutoff(const trnqc_mace *model);
/* Whether the model has the element with this atomic number: 1 or 0. */
int trnqc_mace_has_element(const trnqc_mace *model, int32_t number);
/* The most bytes of a row that the model exchanges, 0 if it needs no exchange. */
int64_t trnqc_mace_row_bytes(const trnqc_mace *model);

int trnqc_mace_evaluate(trnqc_mace *model, const trnqc_mace_structure *structure, trnqc_mace_result *result);

/* The message of the last error of the calling thread. */
const char *trnqc_mace_error(void);

#ifdef __cplusplus
}
#endif

#endif
