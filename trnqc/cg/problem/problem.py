"""Definition of a tensor product by its slots, the paths between them and their normalisation, as in e3nn.

A path of mode uvw, with path weight pw, weights W and coupling coefficients C, computes

    z[w, k] += pw * sum_uv W[u, v, w] sum_ij C[i, j, k] x[u, i] y[v, j]

In mode uvu, w is u and the weights are W[u, v]. See modes.py for all modes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from trnqc.cg.problem.instructions import PathInstruction, paths_of
from trnqc.cg.problem.irreps import Irreps
from trnqc.cg.problem.normalisation import one_of, path_weights, variances_of
from trnqc.errors import InputError, UnsupportedPrecision

# Orders of the elements in a slot: channels (mul) and components (ir), the last one fastest.
LAYOUTS = ("mul_ir", "ir_mul")
# Types of the elements.
DTYPES = ("float32", "float64")
# Arguments that `TPProblem.changed` can change.
OPTIONS = ("shared_weights", "layout", "dtype", "label", "internal_weights")


@dataclass(frozen=True, init=False)
class TPProblem:
    """A tensor product of x in `irreps_in1` with y in `irreps_in2`.

    The arguments are those of e3nn's ``o3.TensorProduct`` and of OpenEquivariance's ``TPProblem``, with their meaning
    and their defaults.

    Parameters
    ----------
    irreps_in1, irreps_in2, irreps_out
        Irreps as text, as e3nn's or OpenEquivariance's objects, or as (multiplicity, (l, parity)) pairs.
    instructions : iterable of tuples
        (i_in1, i_in2, i_out, mode, has_weight[, path_weight = 1]), mode one of uvw, uvu, uvv, uuw, uuu, uvuv, ``uvu<v``
        and ``u<vw``. The attribute contains `PathInstruction` objects, whose path_weight includes the normalisation.
    in1_var, in2_var, out_var : sequence of float, optional
        Variances of the slots, 1 by default.
    irrep_normalization : {"component", "norm", "none"}
    path_normalization : {"element", "path", "none"}
    internal_weights : bool, optional
        Whether modules of this problem hold the weights as a parameter. None means e3nn's default: they do if there
        are weights and these are shared.
    shared_weights : bool, optional
        Whether all rows share one set of weights (the default) or each row has its own.
    label : str, optional
        A descriptive name. Neither it nor `internal_weights` takes part in comparisons.
    irrep_dtype, weight_dtype, dtype
        float32 or float64 as a name or as NumPy's or PyTorch's type; all that are passed must be equal. If none is, the
        dtype is that of the operands.
    layout : {"mul_ir", "ir_mul"}
        Order of the elements in a slot of x, y and z: the fastest index is the component in mul_ir, and the channel in
        ir_mul.
    compile_left_right, compile_right, _specialized_code, _optimize_einsums
        Arguments of e3nn, accepted for compatibility and ignored.
    normalization : str, optional
        e3nn's former name of `irrep_normalization`.

    Raises
    ------
    IrrepsError, InstructionError, UnsupportedMode, InputError, UnsupportedPrecision
    """

    irreps_in1: Irreps
    irreps_in2: Irreps
    irreps_out: Irreps
    instructions: tuple[PathInstruction, ...]
    shared_weights: bool
    layout: str
    dtype: str | None
    label: str | None = field(compare=False)
    internal_weights: bool = field(compare=False)

    def __init__(
        self,
        irreps_in1: Any,
        irreps_in2: Any,
        irreps_out: Any,
        instructions: Iterable[Sequence[Any]],
        in1_var: Sequence[float] | None = None,
        in2_var: Sequence[float] | None = None,
        out_var: Sequence[float] | None = None,
        irrep_normalization: str | None = None,
        path_normalization: str | None = None,
        internal_weights: bool | None = False,
        shared_weights: bool | None = None,
        *,
        label: str | None = None,
        irrep_dtype: Any = None,
        weight_dtype: Any = None,
        layout: str = "mul_ir",
        dtype: Any = None,
        compile_left_right: bool = True,
        compile_right: bool = False,
        normalization: str | None = None,
        _specialized_code: bool | None = None,
        _optimize_einsums: bool | None = None,
    ) -> None:
        if normalization is not None:
            words = "normalization is e3nn's former name of irrep_normalization"
            warnings.warn(words, DeprecationWarning, stacklevel=2)
            irrep_normalization = normalization
        slots = tuple(Irreps.of(irreps) for irreps in (irreps_in1, irreps_in2, irreps_out))
        variances = (
            variances_of("in1_var", in1_var, slots[0]),
            variances_of("in2_var", in2_var, slots[1]),
            variances_of("out_var", out_var, slots[2]),
        )
        paths = paths_of(instructions, slots)
        by_irrep, by_path = irrep_normalization or "component", path_normalization or "element"
        weights = path_weights(paths, slots, variances, by_irrep, by_path)
        paths = tuple(replace(path, path_weight=weight) for path, weight in zip(paths, weights))
        shared = shared_weights is None or bool(shared_weights)
        if internal_weights is None:
            internal_weights = shared and any(path.has_weight for path in paths)
        one_dtype = _one_dtype(dtype=dtype, irrep_dtype=irrep_dtype, weight_dtype=weight_dtype)
        self._set(slots, paths, shared, layout, one_dtype, label, internal_weights)

    def _set(
        self,
        slots: tuple[Irreps, ...],
        paths: tuple[PathInstruction, ...],
        shared_weights: bool,
        layout: str,
        dtype: Any,
        label: str | None,
        internal_weights: bool = False,
    ) -> None:
        if internal_weights and not shared_weights:
            raise InputError("internal_weights: expected shared_weights=True with it, as in e3nn; found False")
        layout = one_of("layout", layout, LAYOUTS)
        dtype = None if dtype is None else one_of("dtype", _dtype_name(dtype), DTYPES)
        values = (*slots, paths, bool(shared_weights), layout, dtype, label, bool(internal_weights))
        for field_, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, field_.name, value)

    def changed(self, **options: Any) -> TPProblem:
        """Return the problem with changed shared_weights, layout, dtype, label or internal_weights."""
        if unknown := set(options) - set(OPTIONS):
            raise InputError(f"expected options among {', '.join(OPTIONS)}; found {sorted(unknown)}")
        return self._with(self.instructions, options)

    def weighted_part(self) -> TPProblem:
        """Return the problem without the paths that have no weights; its product is linear in the weights."""
        return self._with(tuple(path for path in self.instructions if path.has_weight), {})

    def _with(self, paths: tuple[PathInstruction, ...], options: dict[str, Any]) -> TPProblem:
        options = {name: getattr(self, name) for name in OPTIONS} | options
        return _problem((self.irreps_in1, self.irreps_in2, self.irreps_out), paths, **options)

    @cached_property
    def dims(self) -> tuple[int, int, int]:
        """Lengths d1, d2 and d3 of the rows of x, y and z."""
        return self.irreps_in1.dim, self.irreps_in2.dim, self.irreps_out.dim

    @cached_property
    def weight_numel(self) -> int:
        """Number of weights of one row."""
        return sum(path.weight_numel for path in self.instructions)

    def row_length(self, operand: str) -> int:
        """Return the length of a row of an operand, whose name ends in x, y, z or w according to its shape."""
        return self.weight_numel if operand[-1] == "w" else self.dims["xyz".index(operand[-1])]

    def shape_of(self, operand: str, rows: Any) -> tuple[Any, ...]:
        """Return the shape of an operand with this number of rows; shared weights have no rows."""
        length = self.row_length(operand)
        return (length,) if operand[-1] == "w" and self.shared_weights else (rows, length)

    def irreps_of(self, operand: str) -> Irreps:
        """Return the irreps of an operand, whose name ends in x, y or z according to its shape."""
        return (self.irreps_in1, self.irreps_in2, self.irreps_out)["xyz".index(operand[-1])]

    @property
    def slices1(self) -> tuple[slice, ...]:
        """Slices of the slots in x."""
        return self.irreps_in1.slices

    @property
    def slices2(self) -> tuple[slice, ...]:
        """Slices of the slots in y."""
        return self.irreps_in2.slices

    @property
    def slices3(self) -> tuple[slice, ...]:
        """Slices of the slots in z."""
        return self.irreps_out.slices

    def degrees(self, path: PathInstruction) -> tuple[int, int, int]:
        """Return the degrees l1, l2 and l3 of a path."""
        one, two, three = self.irreps_in1[path.i_in1], self.irreps_in2[path.i_in2], self.irreps_out[path.i_out]
        return one.ir.l, two.ir.l, three.ir.l

    def __str__(self) -> str:
        name = f"{self.label}: " if self.label else ""
        modes = "+".join(sorted({path.connection_mode for path in self.instructions}))
        weights = f"{self.weight_numel} {'shared' if self.shared_weights else 'own'} weights"
        return (
            f"{name}{self.irreps_in1} x {self.irreps_in2} -> {self.irreps_out}, "
            f"{len(self.instructions)} paths {modes}, {weights}, {self.layout}, {self.dtype or 'any dtype'}"
        )


def from_e3nn(tp: Any, *, layout: str = "mul_ir", dtype: Any = None, label: str | None = None) -> TPProblem:
    """Return the problem of an e3nn ``o3.TensorProduct``.

    Parameters
    ----------
    tp : e3nn.o3.TensorProduct
        The module. Its path weights are used unchanged, since they are normalised already.
    layout, dtype, label
        As `TPProblem` takes them.

    Notes
    -----
    The problem has no internal weights. The weights of a module with internal weights are passed at each call.
    """
    irreps = (tp.irreps_in1, tp.irreps_in2, tp.irreps_out)
    paths = [
        (i.i_in1, i.i_in2, i.i_out, i.connection_mode, i.has_weight, float(i.path_weight)) for i in tp.instructions
    ]
    return normalised(irreps, paths, shared_weights=tp.shared_weights, layout=layout, dtype=dtype, label=label)


def normalised(irreps: Iterable[Any], instructions: Iterable[Sequence[Any]], **options: Any) -> TPProblem:
    """Return the problem of instructions whose path weights already include all normalisation.

    The options are shared_weights, layout, dtype and label, as `TPProblem` takes them.
    """
    slots = tuple(map(Irreps.of, irreps))
    return _problem(slots, paths_of(instructions, slots), **options)


def _problem(slots: tuple[Irreps, ...], paths: tuple[PathInstruction, ...], **options: Any) -> TPProblem:
    problem = object.__new__(TPProblem)
    problem._set(slots, paths, **options)
    return problem


def _one_dtype(**dtypes: Any) -> str | None:
    """Return the common dtype of the arguments. Raises UnsupportedPrecision if they differ."""
    names = {name: one_of(name, _dtype_name(value), DTYPES) for name, value in dtypes.items() if value is not None}
    if len(set(names.values())) > 1:
        listed = ", ".join(f"{name} = {value}" for name, value in names.items())
        raise UnsupportedPrecision(f"expected irreps and weights of one dtype; found {listed}")
    return next(iter(names.values()), None)


def _dtype_name(dtype: Any) -> str:
    """Return the name of a dtype of NumPy or PyTorch, such as float64."""
    return getattr(dtype, "__name__", str(dtype)).removeprefix("torch.")
