"""PySCF's objects of excited states, with most products in single precision: the same methods and the same numbers.

TDA, TDHF or TDDFT object -> states that have converged with products in single precision -> PySCF's solver begins with
them and ends in double precision

A solver multiplies the response matrices with ten or more trial vectors in each of about ten iterations. The states of
the first solution are within its rounding errors, so that one more iteration in double precision confirms them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from pyscf import lib
from pyscf.lib import logger

from trnqc import jit
from trnqc.eri.compiled import background
from trnqc.eri.fitting import half_transform
from trnqc.host.overrides import users_method
from trnqc.jit import Recipe
from trnqc.pyscf.density_fitting import DF
from trnqc.xc.densities import ORDER
from trnqc.xc.numint import NumInt
from trnqc.xc.programs import point_programs

# How many times the error of a product the threshold of convergence has to be.
SAFETY = 10.0
# The part of the threshold to which states converge in single precision, so that their errors do not exceed the rest.
PART = 0.8
# Elements of the first products below this share of the largest are zero but for rounding in double precision.
ZERO = 1e-11
# Functions below which products in double precision take little time.
SMALLEST = 100
# The steps of a solution. One of the user may depend on products in double precision.
STEPS = ("kernel", "gen_vind", "gen_response", "get_init_guess", "get_precond")


class ExcitationsOfClass:
    """The method of the class below a layer that makes an object of excited states, with our layer on that object.

    It is what is below, such as None, where PySCF's class has no such states.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._layer, self._name = owner, name

    def __get__(self, mf: Any, owner: type) -> Any:
        below = getattr(super(self._layer, owner if mf is None else mf), self._name)
        if mf is None or not callable(below):
            return below
        return lambda *args, **options: accelerate_excitations(below(*args, **options))


def accelerate_excitations(excitations: Any) -> Any:
    """Return PySCF's object of excited states with products in single precision; `undo()` returns it without them."""
    if isinstance(excitations, _AcceleratedExcitations):
        return excitations
    return lib.set_class(_AcceleratedExcitations(excitations), (_AcceleratedExcitations, excitations.__class__))


class _AcceleratedExcitations(lib.StreamObject):
    """The layer that `accelerate_excitations` puts on an object. `ran_on` says in which precision its products were."""

    __name_mixin__ = "Accelerated"
    _keys = frozenset({"ran_on"})
    _scf: Any
    _products: Any = None

    def __init__(self, excitations: Any) -> None:
        self.__dict__.update(excitations.__dict__)
        self.ran_on = "nothing yet"

    def undo(self) -> Any:
        """Return the object without this layer, with the same state."""
        plain = lib.view(self, lib.drop_class(self.__class__, _AcceleratedExcitations))
        for name in ("ran_on", "_products"):
            plain.__dict__.pop(name, None)
        return plain

    def __reduce__(self) -> Any:
        return accelerate_excitations, (self.undo(),)

    def gen_vind(self, mf: Any = None) -> Any:
        """Return the function that multiplies the response matrices with vectors, and their diagonal, as PySCF does."""
        products, self._products = self._products, None
        return super().gen_vind(mf) if products is None else products

    def kernel(self, x0: Any = None, nstates: int | None = None) -> Any:
        """Return excitation energies, in Hartree, and amplitudes of the lowest states, as PySCF does."""
        try:
            if reason := self._why_double(x0):
                self.ran_on = f"double precision: {reason}"
            else:
                x0 = self._guess(nstates)
            logger.info(self, "excited states: %s", self.ran_on)
            return super().kernel(x0, nstates)
        finally:
            self._products = None

    def _why_double(self, x0: Any) -> str:
        """Return why all products are in double precision, or ""."""
        mf = self._scf
        if x0 is not None:
            return "the solver starts from vectors of the user, which may have converged already"
        if getattr(mf, "early_precision", "fp64") == "fp64":
            return "early_precision is 'fp64'"
        if mf.mo_coeff is None or np.iscomplexobj(mf.mo_coeff[0]) or mf.mol.nao_nr() < SMALLEST:
            return "the molecule is small, or there are no real orbitals"
        if mf.mol.symmetry:
            return "rounding errors would mix irreducible representations, which PySCF's solver keeps apart"
        if users := users_method(self, *STEPS):
            return f"{users} is the user's"
        if not _roundable(mf):
            return "neither fitted integrals nor a functional are ours"
        # These programs are small, and are compiled in about a second, for which the states may wait.
        kernels = "cached" if mf.kernels == "cached" or jit.lacks_compiler() else "wait"
        needed = background.Needed(lambda: _programs(mf), kernels)
        return "" if needed.ready() else needed.reason

    def _guess(self, nstates: int | None) -> Any:
        """Return states that have converged with products in single precision, or None where that is too coarse."""
        early = self.undo()
        early.chkfile, early.conv_tol = None, PART * self.conv_tol
        if self.verbose < logger.DEBUG:  # Energies are to be printed once.
            early.verbose = logger.QUIET
        # Both solutions use one function, for which the kernel of the functional is evaluated on the grid.
        self._products = multiply, diagonal = early.gen_vind(self._scf)
        rounded = _RoundedProducts(self._scf, multiply, 2 if has_both(early) else 1, self.conv_tol)
        early.gen_vind = lambda mf=None: (rounded, diagonal)
        try:
            early.kernel(nstates=nstates)
        except (_TooCoarse, np.linalg.LinAlgError, RuntimeError) as error:
            # The last two are the solver's, for trial vectors that depend on each other but for rounding.
            self.ran_on = f"double precision: {error}"
            return None
        if not np.all(early.converged):
            self.ran_on = "double precision: the states have not converged in single precision"
            return None
        self.ran_on = "products in single precision, the first and the last ones in double precision"
        return vectors(early, diagonal)


class _TooCoarse(Exception):
    """Products in single precision have too large errors for a threshold of convergence."""


class _RoundedProducts:
    """Multiplies the response matrices with trial vectors, but for those of the first call in single precision.

    A vector has `parts`, one for X or two for X and Y. Pairs of orbitals whose symmetry no vector of the first call has
    stay out of all products. In double precision no state would ever get such a component, while one that grows from
    rounding errors in single precision can become a state that PySCF does not find.
    """

    def __init__(self, mf: Any, multiply: Callable[[np.ndarray], np.ndarray], parts: int, conv_tol: float) -> None:
        self._mf, self._multiply, self._parts, self._conv_tol = mf, multiply, parts, conv_tol
        self._reached: np.ndarray | None = None

    def __call__(self, trials: Any) -> np.ndarray:
        if self._reached is None:
            return self._first(np.asarray(trials))
        with single_precision(self._mf):
            return self._multiply(trials) * self._reached

    def _first(self, trials: np.ndarray) -> np.ndarray:
        exact = self._multiply(trials)
        with single_precision(self._mf):
            error = float(np.linalg.norm(self._multiply(trials[:1]) - exact[:1]))
        if not SAFETY * error <= self._conv_tol:
            raise _TooCoarse(f"conv_tol {self._conv_tol:g} is below {SAFETY:g} times the error {error:.1e} of single")
        largest = np.abs(np.concatenate([exact, trials])).max(axis=0).reshape(self._parts, -1).max(axis=0)
        self._reached = np.tile(largest > ZERO * largest.max(initial=0.0), self._parts)
        return exact


def has_both(excitations: Any) -> bool:
    """Return whether the solver's vectors are X and Y, one after the other."""
    from pyscf.tdscf import rhf, uhf  # Few jobs need them.

    return isinstance(excitations, (rhf.TDHF, uhf.TDHF)) and not is_casidas(excitations)


def is_casidas(excitations: Any) -> bool:
    """Return whether the solver's vectors are those of Casida's equation, for functionals without exact exchange."""
    from pyscf.tdscf import rks, uks

    return isinstance(excitations, (rks.CasidaTDDFT, uks.CasidaTDDFT))


def vectors(excitations: Any, diagonal: np.ndarray) -> np.ndarray:
    """Return the vectors [states, n] with which PySCF's solver begins, of the states that an object has.

    `diagonal` is that of the response matrices.
    """
    rows = []
    for x, y in excitations.xy:
        x, y = (np.concatenate([np.ravel(spin) for spin in (of if isinstance(of, tuple) else (of,))]) for of in (x, y))
        if has_both(excitations):
            rows.append(np.concatenate([x, y]))
            continue
        if is_casidas(excitations):
            # X + Y is the vector times the square root of the difference of orbital energies, and the diagonal is the
            # square of that difference.
            x = np.divide(x + y, diagonal**0.25, out=np.zeros_like(x), where=diagonal > 0)
        rows.append(x / np.linalg.norm(x))
    return np.array(rows)


@contextmanager
def single_precision(mf: Any) -> Iterator[None]:
    """A context in which the responses of an accelerated SCF object are computed in single precision."""
    parts = _roundable(mf)
    for part in parts:
        part.response_precision = np.float32
    try:
        yield
    finally:
        for part in parts:
            del part.response_precision


def _roundable(mf: Any) -> list[Any]:
    """Return the parts of an SCF object whose responses can be in single precision."""
    held = getattr(mf, "with_df", None), getattr(mf, "_numint", None)
    return [part for part in held if type(part) in (DF, NumInt)]


def _programs(mf: Any) -> list[Recipe]:
    """Return the programs in single precision of an SCF object."""
    programs: list[Recipe] = []
    for part in _roundable(mf):
        if isinstance(part, DF):
            programs.append(half_transform.recipe("f32"))
        elif (kind := part._xc_type(mf.xc)) in ORDER:
            programs += point_programs.programs_for(kind, "f32")
    return programs
