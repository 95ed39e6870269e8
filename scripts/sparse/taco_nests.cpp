// Prints the C code that TACO generates for one of the loop nests below, to be called by scripts/sparse/taco.py.
//
//     taco_nests NEST EXTENT
//
// EXTENT is that of the workspace. All tensors are stored with their modes in the order of their indices. Each program
// consists of TACO's functions `assemble`, `compute` and `evaluate`; the last does both in one pass over the operands.
// The nests of the integrals are those of the CoNST paper (Raje et al., arXiv:2401.04836) as its authors hand them to
// TACO: a product of W with rows of the transposed projector, or, with a map, a second workspace.

#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <string>

#include "codegen/codegen.h"
#include "taco.h"
#include "taco/index_notation/transformations.h"
#include "taco/lower/lower.h"

using namespace taco;

static const Format csr({Dense, Sparse}), csf({Dense, Sparse, Sparse}), matrix({Dense, Dense});

static TensorVar operand(const char* name, const Format& format) {
  std::vector<Dimension> extents(format.getOrder());
  return TensorVar(name, Type(Float64, Shape(extents)), format);
}

static TensorVar row(const char* name, int extent) {
  return TensorVar(name, Type(Float64, {Dimension(extent)}), Format({Dense}));
}

static IndexVar i("i"), j("j"), k("k"), m("m"), n("n"), u("u"), r("r"), s("s"), K("K"), u0("u0"), n0("n0");

static TensorVar integral = operand("Int", csf), orbitals = operand("Ct", csr), projector = operand("P", csr);
static TensorVar transposed = operand("Pt", csr), map = operand("L", csr), result = operand("X", csf);

// The first contraction of the integrals: a row over n of each K and i.
static IndexStmt half(TensorVar w) { return forall(m, forall(n, Access(w, {n}) += integral(K, m, n) * orbitals(i, m))); }

// Result X(i, K, u), or X(K, i, u) with auxiliary functions outermost.
static IndexStmt without_map(int extent, bool orbital_outermost) {
  TensorVar w = row("W", extent);
  Access x = orbital_outermost ? result(i, K, u) : result(K, i, u);
  IndexStmt both = where(forall(u, forall(n, x += w(n) * transposed(u, n))), half(w));
  return orbital_outermost ? forall(i, forall(K, both)) : forall(K, forall(i, both));
}

static IndexStmt with_map(int extent) {
  TensorVar w = row("W", extent), v = row("V", extent);
  IndexStmt second = where(forall(n0, forall(u, v(u) += w(n0) * projector(n0, u))), half(w));
  return forall(K, forall(i, where(forall(u0, result(K, i, u0) += v(u0) * map(K, i)), second)));
}

static TensorVar tensor = operand("T", csf), first = operand("B", matrix), second = operand("C", matrix);

static IndexStmt mttkrp(int extent, bool fused) {
  TensorVar w = row("W", extent), out = operand("R", matrix);
  if (!fused) {
    return forall(i, forall(j, forall(k, forall(r, out(i, r) += tensor(i, j, k) * first(j, r) * second(k, r)))));
  }
  IndexStmt fibre = forall(k, forall(r, w(r) += tensor(i, j, k) * second(k, r)));
  return forall(i, forall(j, where(forall(r, out(i, r) += w(r) * first(j, r)), fibre)));
}

static IndexStmt ttmc(int extent, bool fused) {
  TensorVar w = row("W", extent), out = operand("R", Format({Dense, Dense, Dense}));
  if (!fused) {
    IndexStmt columns = forall(r, forall(s, out(i, r, s) += tensor(i, j, k) * first(j, r) * second(k, s)));
    return forall(i, forall(j, forall(k, columns)));
  }
  IndexStmt fibre = forall(k, forall(s, w(s) += tensor(i, j, k) * second(k, s)));
  return forall(i, forall(j, where(forall(r, forall(s, out(i, r, s) += first(j, r) * w(s))), fibre)));
}

int main(int count, char** words) {
  const std::map<std::string, std::function<IndexStmt(int)>> nests = {
      {"orbitals", [](int extent) { return without_map(extent, true); }},
      {"functions", [](int extent) { return without_map(extent, false); }},
      {"map", with_map},
      {"mttkrp", [](int extent) { return mttkrp(extent, false); }},
      {"mttkrp-fused", [](int extent) { return mttkrp(extent, true); }},
      {"ttmc", [](int extent) { return ttmc(extent, false); }},
      {"ttmc-fused", [](int extent) { return ttmc(extent, true); }},
  };
  auto nest = count == 3 ? nests.find(words[1]) : nests.end();
  if (nest == nests.end()) {
    std::cerr << "usage: taco_nests NEST EXTENT, with a nest of this program's table\n";
    return 2;
  }
  IndexStmt statement = scalarPromote(nest->second(std::atoi(words[2])).concretize());
  auto generator = ir::CodeGen::init_default(std::cout, ir::CodeGen::ImplementationGen);
  generator->compile(lower(statement, "assemble", true, false), true);
  generator->compile(lower(statement, "compute", false, true), false);
  generator->compile(lower(statement, "evaluate", true, true), false);
}
