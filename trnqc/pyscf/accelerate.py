"""PySCF's mean-field objects with our integrals: the same methods and the same numbers.

SCF object -> object of the same class with a layer on top -> J, K and their gradients from generated kernels

Like PySCF's own `density_fit`, `accelerate` returns a new object that shares the state of the old one. Everything else
(DIIS, grids, symmetry, scanners, checkpoints) is PySCF's.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from typing import Any

from pyscf import df, gto, lib, scf
from pyscf.df.df_jk import _DFHF
from pyscf.lib import logger

from trnqc.eri.api import builder
from trnqc.eri.compiled import background
from trnqc.eri.fitting import on_device
from trnqc.errors import InputError, UnsupportedError
from trnqc.host.blas import single_threaded
from trnqc.host.clock import measured
from trnqc.pyscf import exchange as exchange_methods
from trnqc.pyscf import resident
from trnqc.pyscf.coulomb_exchange import COVERED, CoulombExchange
from trnqc.pyscf.density_fitting import DF
from trnqc.pyscf.diis import CDIIS
from trnqc.pyscf.early import gradient, precision, quadrature, screening
from trnqc.pyscf.early.precision import EarlyCycles
from trnqc.pyscf.early.quadrature import EarlyQuadrature, WrongGrid
from trnqc.pyscf.early.screening import EarlyScreening
from trnqc.pyscf.excitations import ExcitationsOfClass
from trnqc.pyscf.fitted_gradients import accelerate_fitted_gradients
from trnqc.pyscf.gradients import accelerate_gradients
from trnqc.pyscf.molecule_cache import MoleculeCache, Timings
from trnqc.pyscf.quadratures import accelerate_quadratures, accelerate_xc_gradients, undo_quadratures
from trnqc.pyscf.seminumerical_gradients import accelerate_seminumerical_gradients

# Functions up to which several threads make the matrix products and eigenvectors of an SCF slower rather than faster,
# because they wait for each other. J and K have threads of their own.
FEW_FUNCTIONS = 1000


def accelerate(
    mf: Any,
    backend: str = "auto",
    kernels: str | None = None,
    early_precision: str = "fp32",
    exchange: str | None = None,
    early_grid: str = "coarse",
    early_direct_scf_tol: float = 1e-9,
) -> Any:
    """Return an SCF object of PySCF with J, K and their gradients by generated kernels.

    Parameters
    ----------
    mf : pyscf.scf.hf.SCF
        RHF, UHF, ROHF, RKS, UKS or ROKS of a molecule, with or without symmetry, density fitting, solvent or spin-free
        X2C. Call `newton()` and make scanners afterwards.
    backend : str
        Where J and K are computed: "auto" (the CPU), "cpu", "cuda" (see `trnqc.eri.get_jk`), or with density fitting
        also "neuron" and "simulator". With "cuda", RHF and UHF run on a GPU altogether, if nothing else was asked for
        than PySCF's defaults; `ran_on` says so, or why not. The last two compute the J and K of early cycles by NKI
        kernels in `early_precision`; integrals, and J and K of the cycles that follow, are computed on the host in
        double precision.
    kernels : str, optional
        What happens while the kernels of the basis set are not compiled yet. $TRNQC_KERNELS sets the default.

        - "background" (the default): a process of low priority compiles them. PySCF's integrals are used until all
          kernels that a step needs are there.
        - "wait": they are compiled first, so that all integrals come from one source.
        - "cached": nothing is compiled. PySCF's integrals are used if a kernel is missing.

    early_precision : str
        The precision of fitted J and K in the first cycles of a large SCF, "fp32" or "fp64"; on "neuron" and
        "simulator", in the first cycles of any SCF, "fp32", "bf16x6", "bf16x3" or "bf16". All cycles are in double
        precision from the one on in which the orbital gradient comes near the error of this precision or the threshold
        of convergence, so that the converged numbers are those of double precision. So are the last potentials of an
        SCF that stops at `max_cycle`. With "fp32", excited states converge with products in single precision, and then
        in double precision.
    exchange : str, optional
        How K is computed. By default as PySCF would: from fitted integrals with density fitting, else exactly.

        - "fitted": from fitted integrals; the object has density fitting.
        - "direct": exactly, also beside a fitted J.
        - "seminumerical": with one of the two integrations on a grid, for large molecules. The error of the energy is
          below 1e-5 Hartree an atom. J is fitted or exact, as without this option. There are gradients of
          this energy, and no Hessians.
        - "auto": "seminumerical" where it is estimated to be faster than the default, else the default.
    early_grid : str
        The grid of exchange and correlation in the first cycles of a large Kohn-Sham SCF, "coarse" or "full". The
        energies and potentials of coarse grids are corrected by those of `mf.grids` in some cycles, and all are of
        `mf.grids` from the one on in which the orbital gradient comes near the error or the threshold of convergence.

    early_direct_scf_tol : float
        What direct J and K leave out in the first cycles of a large SCF, in place of `mf.direct_scf_tol`; 0 for no
        difference. All integrals above `mf.direct_scf_tol` are computed for a whole density, and for the changes that
        follow it, from the cycle on in which the orbital gradient comes near the error or the threshold of convergence.

    Returns
    -------
    pyscf.scf.hf.SCF
        An object of the same class, with a layer on top and the same state. The layer adds `undo()`, which returns the
        object without it, `ran_on`, which says in words what computed the last J and K, `timings`, the wall-clock
        seconds of the parts of the last SCF, and `reduced_cycles`, the numbers of its cycles after which the potential
        was in reduced precision (0 is the initial guess), `coarse_cycles`, those with a coarse grid, and
        `loose_cycles`, those with `early_direct_scf_tol`. A callback finds the last cycle's number there too.

    Raises
    ------
    UnsupportedError
        For other kinds of objects, and without density fitting for a backend that needs it.
    UnsupportedPrecision
        If the backend does not have `early_precision`. If its device turns out to be less accurate than the precision
        promises, the SCF raises this error, or PrecisionError.
    BackendUnavailable
        If the backend cannot run here.
    InputError
        For an unknown word, and for `exchange` that the object or the backend does not have.
    CompilerError
        With kernels="wait" and without a C compiler, when integrals are first needed. Otherwise PySCF serves then.

    Notes
    -----
    If PySCF would keep all integrals in memory (they fit into `mf.max_memory`), so does this object, with integrals by
    our kernels. Otherwise J and K are direct, incremental if `mf.direct_scf`, without integrals that add less than
    `mf.direct_scf_tol`. PySCF serves a basis beyond the kernels, with a warning that names the shell. It also serves
    densities that do not fit into `mol.max_memory` and generalised objects that its converters return, with a note in
    its log and in `ran_on`.
    """
    _check(mf)
    if backend in on_device.BACKENDS:
        precision.check_device(mf, backend, early_precision, exchange)
    else:
        if backend not in (known := ("auto", "cpu", "cuda")):
            raise InputError(f"backend is one of {', '.join((*known, *on_device.BACKENDS))}; found {backend!r}")
        builder(backend)
        if early_precision not in ("fp32", "fp64"):
            raise InputError(f"early_precision is fp32 or fp64, found {early_precision!r}")
    if early_grid not in ("coarse", "full"):
        raise InputError(f"early_grid is coarse or full, found {early_grid!r}")
    if not 0 <= early_direct_scf_tol < 1e-3:
        raise InputError(f"early_direct_scf_tol is a small number such as 1e-9, or 0, found {early_direct_scf_tol!r}")
    kernels = background.chosen(kernels)
    if isinstance(mf, _Accelerated):
        mf = mf.undo()
    exchange_methods.check(mf, exchange, backend)
    layer = _Accelerated(mf, backend, kernels, early_precision, exchange, early_grid, early_direct_scf_tol)
    return lib.set_class(layer, (_Accelerated, mf.__class__))


def _check(mf: Any) -> None:
    if not isinstance(mf, scf.hf.SCF):
        raise InputError(f"trnqc.accelerate takes an SCF object of PySCF, such as scf.RHF(mol), found {type(mf)}")
    kind, modules = type(mf).__name__, [cls.__module__ for cls in type(mf).__mro__]
    if any(name.startswith("pyscf.pbc") for name in modules):
        raise UnsupportedError(f"{kind} is periodic, trnqc's integrals are of molecules: use PySCF's object as it is")
    if any(name.startswith("pyscf.sgx") for name in modules):
        raise UnsupportedError(f"{kind} makes K on a grid: accelerate the object that it was made from instead")
    if "_scf" in mf.__dict__:
        raise UnsupportedError(f"{kind} holds another SCF object: accelerate that one first, then call .newton()")
    if not isinstance(mf, COVERED):
        raise UnsupportedError(
            f"{kind} has orbitals of several components; trnqc accelerates RHF, UHF, ROHF, RKS, UKS and ROKS: use "
            "PySCF's object as it is"
        )


def _accelerated_again(mf: Any, *arguments: Any) -> Any:
    """Restore the layer of a pickled object, unless PySCF has converted the object below to a class without one."""
    return accelerate(mf, *arguments) if isinstance(mf, COVERED) else mf


def _list(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


class _DIISOfClass:
    """The class of DIIS objects: the class of the object below the layer, with PySCF's class replaced by ours."""

    def __get__(self, mf: Any, owner: Any) -> Any:
        classes = owner.__mro__
        below = next(vars(cls)["DIIS"] for cls in classes[classes.index(_Accelerated) + 1 :] if "DIIS" in vars(cls))
        return CDIIS if below is scf.diis.CDIIS else below


class _Accelerated(CoulombExchange):
    """The layer that `accelerate` puts on an SCF object."""

    __name_mixin__ = "Accelerated"
    _keys = frozenset(
        {"backend", "kernels", "early_precision", "exchange", "early_grid", "early_direct_scf_tol"}
        | {"ran_on", "timings", "reduced_cycles", "coarse_cycles", "loose_cycles"}
    )
    DIIS = _DIISOfClass()
    TDA = ExcitationsOfClass()
    TDHF = ExcitationsOfClass()
    TDDFT = ExcitationsOfClass()
    TDDFTNoHybrid = ExcitationsOfClass()
    CasidaTDDFT = ExcitationsOfClass()
    _run: EarlyCycles | None = None
    _quadrature: EarlyQuadrature | None = None
    _eri: Any
    with_solvent: Any
    mo_coeff: Any
    mo_occ: Any
    _opt: dict[float | None, Any]

    def __init__(
        self,
        mf: Any,
        backend: str,
        kernels: str,
        early_precision: str,
        exchange: str | None,
        early_grid: str,
        early_direct_scf_tol: float,
    ) -> None:
        self.__dict__.update(mf.__dict__)
        self.backend, self.kernels, self.early_precision = backend, kernels, early_precision
        self.exchange, self.early_grid, self.early_direct_scf_tol = exchange, early_grid, early_direct_scf_tol
        self.ran_on, self.timings = "nothing yet", Timings()
        self.reduced_cycles: list[int] = []
        self.coarse_cycles: list[int] = []
        self.loose_cycles: list[int] = []
        self._cache = MoleculeCache()
        if isinstance(mf, _DFHF) and type(mf.with_df) is df.DF:
            self.with_df = DF.of(mf.with_df, kernels)
        accelerate_quadratures(self, kernels)
        if "with_solvent" in self.__dict__:
            from trnqc.pyscf.solvents.layer import (
                accelerate_solvent,  # PySCF's solvents are imported where there is one.
            )

            self.with_solvent = accelerate_solvent(self.with_solvent, kernels)

    def undo(self) -> Any:
        """Return the object without this layer, with the same state."""
        plain = lib.view(self, lib.drop_class(self.__class__, _Accelerated))
        for name in (*_Accelerated._keys, "_cache", "_run", "_quadrature", "_screening", "_early_grid", "_shared"):
            plain.__dict__.pop(name, None)
        if isinstance(plain.__dict__.get("with_df"), DF):
            plain.with_df = plain.with_df.undo()
        if isinstance(plain.__dict__.get("_scf"), _Accelerated):  # It was put below a second-order solver later.
            plain._scf = plain._scf.undo()
        undo_quadratures(plain)
        if "with_solvent" in plain.__dict__:
            from trnqc.pyscf.solvents.layer import undo_solvent

            plain.with_solvent = undo_solvent(plain.with_solvent)
        return plain

    @property
    def _arguments(self) -> tuple[str, str, str, str | None, str, float]:
        how = self.backend, self.kernels, self.early_precision, self.exchange
        return *how, self.early_grid, self.early_direct_scf_tol

    @property
    def opt(self) -> Any:
        """PySCF's screening data, computed on request; our own J and K do not read them."""
        if self._opt.get(None) is None:
            self._opt[None] = self.init_direct_scf(self.mol)
        return self._opt[None]

    @opt.setter
    def opt(self, value: Any) -> None:
        self._opt[None] = value

    def reset(self, mol: gto.Mole | None = None) -> Any:
        self._cache = MoleculeCache()
        return super().reset(mol)

    def __reduce__(self) -> Any:
        return _accelerated_again, (self.undo(), *self._arguments)

    def to_gpu(self) -> Any:
        return self.undo().to_gpu()

    def to_ghf(self) -> Any:
        return self.undo().to_ghf()

    def to_gks(self, *args: Any, **options: Any) -> Any:
        return self.undo().to_gks(*args, **options)

    def to_ks(self, *args: Any, **options: Any) -> Any:
        return accelerate(self.undo().to_ks(*args, **options), *self._arguments)

    def to_hf(self) -> Any:
        return accelerate(self.undo().to_hf(), *self._arguments)

    def density_fit(self, *args: Any, **options: Any) -> Any:
        return accelerate(self.undo().density_fit(*args, **options), *self._arguments)

    @measured("SCF")
    def scf(self, dm0: Any = None, **options: Any) -> Any:
        """Run the SCF as PySCF does."""
        self.timings.clear()
        if reason := quadrature.why_not(self):
            logger.debug(self, "all cycles are on the full grid: %s", reason)
        else:
            orbitals = self.mo_coeff, self.mo_occ
            try:
                energy = self._iterated(dm0, EarlyQuadrature(self, dm0), **options)
                if self.converged or not self.coarse_cycles:
                    return energy
                why = "The SCF with coarse grids in early cycles has not converged"
            except WrongGrid:
                why = "A coarse grid differs too much from the full one"
            logger.note(self, "%s: the SCF begins again with full grids", why)
            self.mo_coeff, self.mo_occ = orbitals
        return self._iterated(dm0, None, **options)

    def _iterated(self, dm0: Any, coarse: EarlyQuadrature | None, **options: Any) -> Any:
        early, self.reduced_cycles, self.loose_cycles = None, [], []
        self.coarse_cycles = coarse.coarse if coarse else []
        few = self.mol.nao_nr() < FEW_FUNCTIONS
        with self.timings.measure("SCF"), single_threaded() if few else nullcontext(), ExitStack() as run:
            if self._may_round(dm0):
                early = self._run = run.enter_context(EarlyCycles(self, self.backend, self.early_precision))
                self.reduced_cycles = early.reduced
            if self._may_leave_out(dm0):
                self._screening = EarlyScreening(self, self.early_direct_scf_tol)
                self.loose_cycles = self._screening.loose
            if coarse:
                self._quadrature = run.enter_context(coarse)
            if self._on_grid(self.mol) and exchange_methods.EarlyGrid.suits(self, dm0):
                self._early_grid = exchange_methods.EarlyGrid(self.max_cycle)
            try:
                on_host = self._on_gpu(dm0, options) if self.backend == "cuda" else ""
                energy = self.e_tot if on_host is None else super().scf(dm0, **options)
            finally:
                self._run = self._early_grid = self._quadrature = self._screening = None
        if self.loose_cycles:
            tolerance = f"{self.early_direct_scf_tol:g} in place of {self.direct_scf_tol:g}"
            self.ran_on += f"; J and K after cycles {_list(self.loose_cycles)} without integrals below {tolerance}"
        if self.coarse_cycles:
            self.ran_on += f"; exchange and correlation after cycles {_list(self.coarse_cycles)} on coarse grids"
        if on_host:
            self.ran_on += f"; the other matrices on the host: {on_host}"
        if self.backend in on_device.BACKENDS:
            words = early.words if early else f"no J and K on {self.backend} ({precision.why_not(self, dm0)})"
            self.ran_on = f"{words}; the others in fp64: {self.ran_on}"
        elif self.reduced_cycles:
            self.ran_on += f"; the potentials after cycles {_list(self.reduced_cycles)} in single precision"
        logger.info(self, "%s", self.timings)
        return energy

    def _on_gpu(self, dm0: Any, options: dict[str, Any]) -> str | None:
        """Run the SCF with all matrices on a GPU, or return why that cannot be."""
        ran, words = resident.on_gpu(self, self._place, dm0, **options)
        if ran:
            self.ran_on = words
            return None
        logger.note(self, "The matrices of the SCF stay on the host, but for those of J and K: %s", words)
        return words

    def _may_round(self, dm0: Any) -> bool:
        """Return whether early cycles are in reduced precision."""
        if self.backend not in on_device.BACKENDS:
            if self.early_precision == "fp64" or not self._own_fitting() or self.mol.nao_nr() < precision.SMALLEST:
                return False
            if self.only_dfj or self.exchange == "direct" or self._on_grid(self.mol):
                return False
        if reason := precision.why_not(self, dm0):
            logger.debug(self, "all cycles are in double precision: %s", reason)
        return not reason

    def _may_leave_out(self, dm0: Any) -> bool:
        """Return whether direct J and K of early cycles leave out larger integrals."""
        if self.early_direct_scf_tol <= self.direct_scf_tol or self._program_backend not in ("auto", "cpu"):
            return False
        fitted = isinstance(self, _DFHF) and self.with_df and not self.only_dfj and self.exchange != "direct"
        small = self.mol.nao_nr() < screening.SMALLEST
        if small or fitted or self._on_grid(self.mol) or self._eri is not None or self._is_for_memory(self.mol):
            return False
        if reason := gradient.why_not(self, dm0):
            logger.debug(self, "all cycles have all integrals: %s", reason)
        return not reason

    def get_veff(self, mol: Any = None, dm: Any = None, *last: Any, **options: Any) -> Any:
        """Return the potential of a density as PySCF does, in early cycles from J and K in reduced precision, and from
        coarse grids.
        """
        dm_last = last[0] if last else options.get("dm_last")
        if self._quadrature is None or dm is None or not self._quadrature.is_step(dm_last):
            return self._potential(mol, dm, *last, **options)
        return self._quadrature.veff(dm, lambda: self._potential(mol, dm, *last, **options))

    def _potential(self, mol: Any, dm: Any, *last: Any, **options: Any) -> Any:
        if self._on_grid(self.mol if mol is None else mol):
            # The screening bounds the error of a whole density's energy, and not that of a difference of densities.
            options = {name: value for name, value in options.items() if name not in ("dm_last", "vhf_last")}
            if self._early_grid and dm is not None:
                self._early_grid.observe(dm)
            return super().get_veff(mol, dm, None, None, *last[2:], **options)
        dm_last = last[0] if last else options.get("dm_last")
        if self._screening and dm is not None and self._screening.is_step(dm_last):
            anew = {name: value for name, value in options.items() if name not in ("dm_last", "vhf_last")}
            return self._screening.veff(
                dm,
                lambda: super(_Accelerated, self).get_veff(mol, dm, *last, **options),
                lambda: super(_Accelerated, self).get_veff(mol, dm, None, None, *last[2:], **anew),
            )
        if self._run is None or dm is None or not self._run.is_step(dm_last):
            return super().get_veff(mol, dm, *last, **options)
        self._built_fitting()
        return self._run.veff(dm, lambda: super(_Accelerated, self).get_veff(mol, dm, *last, **options))

    def get_init_guess(self, *args: Any, **options: Any) -> Any:
        with self.timings.measure("initial guess"):
            return super().get_init_guess(*args, **options)

    def eig(self, *args: Any, **options: Any) -> Any:
        with self.timings.measure("diagonalisation"):
            return super().eig(*args, **options)

    def get_jk(
        self,
        mol: gto.Mole | None = None,
        dm: Any = None,
        hermi: int = 1,
        with_j: bool = True,
        with_k: bool = True,
        omega: float | None = None,
    ) -> tuple[Any, Any]:
        """Return J and K [..., nao, nao] of densities as PySCF does; None for what is not asked for."""
        with_fitted_k = with_k and not self._on_grid(self.mol if mol is None else mol)
        fitting = self._built_fitting(with_fitted_k) if with_j or with_fitted_k else None
        rounded = fitting.rounded if fitting else None
        with self.timings.measure(f"J and K, {rounded.products.words}" if rounded else "J and K"):
            return self._jk(mol, dm, hermi, with_j, with_k, omega)

    def nuc_grad_method(self) -> Any:
        """Return PySCF's gradients object with two-electron and XC terms by our programs."""
        return self._accelerated_gradients(super().nuc_grad_method)

    def Gradients(self) -> Any:
        """Return what `nuc_grad_method` returns, unless the class of a user has two different methods."""
        return self._accelerated_gradients(super().Gradients)

    def _accelerated_gradients(self, make: Callable[[], Any]) -> Any:
        gradients = accelerate_xc_gradients(make())
        gradients = (accelerate_fitted_gradients if isinstance(self, _DFHF) else accelerate_gradients)(gradients)
        return accelerate_seminumerical_gradients(gradients) if self._on_grid(self.mol) else gradients

    def Hessian(self) -> Any:
        """Return PySCF's Hessian object with derivatives by our integrals."""
        # Importing them takes a quarter of the time that importing this module would take, and few jobs need them.
        from trnqc.pyscf.hessians import accelerate_hessian

        if self._on_grid(self.mol):
            exchange_methods.refuse_hessians()
        return accelerate_hessian(super().Hessian())
