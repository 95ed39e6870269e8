"""Conversion of other libraries' tensors and of FROSTT's .tns files to `SparseTensor`.

The methods of `SparseTensor` convert in the other direction.
"""

from __future__ import annotations

import gzip
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from trnqc.arrays import has_numbers, is_pydata, transform_of, untransformed
from trnqc.errors import OperandError, TensorFileError
from trnqc.sparse.network.nest import Kind
from trnqc.sparse.tensors.checks import as_double, is_valid_level
from trnqc.sparse.tensors.levels import Compressed, Dense
from trnqc.sparse.tensors.storage import SparseTensor, floating, from_coo, from_dense

# The largest coordinate that can be read exactly, because all numbers of a file are read as float64.
_LARGEST_INDEX = 2**53


def as_tensor(operand: Any) -> SparseTensor:
    """Convert an operand to a `SparseTensor`, without its gradient.

    A `SparseTensor` is returned unchanged. For a tensor under transforms of ``torch.func``, the first element of each
    batch is converted.

    Raises
    ------
    OperandError
        If the operand is not an array or tensor of numbers, or if what it does not store is not zero.
    """
    if isinstance(operand, SparseTensor):
        return operand
    if is_pydata(operand):
        return from_pydata(operand)
    scipy, torch = sys.modules.get("scipy.sparse"), sys.modules.get("torch")
    if scipy is not None and scipy.issparse(operand):
        return _from_rows(operand) or from_scipy(operand)
    if torch is not None and isinstance(operand, torch.Tensor):
        with untransformed():
            return _from_torch(example(operand), None, None)
    return from_dense(operand)


def from_pydata(array: Any, order: Sequence[int] | None = None, kinds: Sequence[Kind] | None = None) -> SparseTensor:
    """Pack a sparse array of PyData's package sparse.

    Parameters
    ----------
    array
        A COO or GCXS array, or one with a method that returns COO, such as DOK. Zeros and bool are treated as in
        `from_coo`.
    order, kinds
        See `from_coo`.

    Raises
    ------
    OperandError
        If the array is none of these, or what it does not store is not zero (`fill_value`).
    """
    coo = array
    for method in ("tocoo", "to_coo"):
        if not hasattr(coo, "coords") and hasattr(coo, method):
            coo = getattr(coo, method)()
    if not hasattr(coo, "coords"):
        raise OperandError(f"sparse arrays of PyData are taken as COO or GCXS; found {type(array).__name__}")
    if not coo.fill_value == 0:
        raise OperandError(
            f"elements that are not stored must be 0; found a sparse array of PyData with fill_value {coo.fill_value}"
        )
    return from_coo(coo.shape, coo.coords, coo.data, order, kinds)


def example(tensor: Any) -> Any:
    """Return the tensor below the transforms of ``torch.func``, at the first element of every batch.

    It has to be called inside `untransformed`.
    """
    functorch = sys.modules["torch"]._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        batch = functorch.maybe_get_bdim(tensor) if functorch.is_batchedtensor(tensor) else None
        tensor = functorch.get_unwrapped(tensor)
        tensor = tensor if batch is None else tensor.select(batch, 0)
    return tensor


def from_scipy(matrix: Any, order: Sequence[int] | None = None, kinds: Sequence[Kind] | None = None) -> SparseTensor:
    """Pack a sparse array or matrix of SciPy.

    Parameters
    ----------
    matrix
        A sparse array of any format. Duplicates, zeros and bool are treated as in `from_coo`.
    order, kinds
        See `from_coo`.

    Examples
    --------
    >>> import scipy.sparse
    >>> print(from_scipy(scipy.sparse.eye_array(3)))
    SparseTensor 3x3, 3 elements (33.33%), levels (0:compressed 1:compressed), 96 B
    """
    coo = matrix.tocoo()
    rows = np.array(coo.coords if hasattr(coo, "coords") else (coo.row, coo.col))
    return from_coo(coo.shape, rows, coo.data, order, kinds)


def _from_rows(matrix: Any) -> SparseTensor | None:
    """Return a CSR or CSC matrix as a dense level over a compressed one, sharing its memory; None for other operands.

    Indices must be in increasing order without duplicates, and values numbers.
    """
    if matrix.ndim != 2 or matrix.format not in ("csr", "csc") or matrix.dtype.kind not in "fciu":
        return None
    order = (0, 1) if matrix.format == "csr" else (1, 0)
    rows, columns = (matrix.shape[mode] for mode in order)
    last = int(matrix.indptr[-1])
    level = Compressed(matrix.indptr.astype(np.int64, copy=False), matrix.indices[:last])
    if not is_valid_level(level, columns, rows):
        return None
    if columns <= np.iinfo(np.int32).max:
        level = replace(level, coordinates=level.coordinates.astype(np.int32, copy=False))
    values = as_double(matrix.data[:last])
    return SparseTensor(matrix.shape, order, (Dense(rows), level), values, floating(matrix.dtype))


def from_torch(tensor: Any, order: Sequence[int] | None = None, kinds: Sequence[Kind] | None = None) -> SparseTensor:
    """Pack a tensor of PyTorch.

    Parameters
    ----------
    tensor
        A tensor of any layout without dense dimensions. A strided one is treated as in `from_dense`; duplicates, zeros
        and bool of the others as in `from_coo`.
    order, kinds
        See `from_coo`.

    Raises
    ------
    OperandError
        If the tensor has dense dimensions or no data, or if it requires a gradient, which a
        `SparseTensor` does not have.
    """
    if lost := transform_of(tensor):
        raise OperandError(
            f"the tensor {lost}, which a SparseTensor does not carry: take .detach(), or pass the tensor to "
            "trnqc.sparse.contract directly"
        )
    return _from_torch(tensor, order, kinds)


def _from_torch(tensor: Any, order: Sequence[int] | None, kinds: Sequence[Kind] | None) -> SparseTensor:
    import torch

    if not has_numbers(tensor):
        what = f"{type(tensor).__name__} on {tensor.device}"
        raise OperandError(f"plans depend on numbers; found a tensor without data, or being traced ({what})")
    tensor = tensor.detach().cpu()
    dtype = {
        torch.float16: np.float16,
        torch.float32: np.float32,
        torch.bfloat16: np.float32,
        torch.complex32: np.complex64,
        torch.complex64: np.complex64,
        torch.complex128: np.complex128,
    }.get(tensor.dtype, np.float64)
    if tensor.dtype != torch.bool:
        tensor = tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
    if tensor.layout == torch.strided:
        return replace(from_dense(_plain(tensor), order, kinds), dtype=np.dtype(dtype))
    if tensor.dense_dim():
        raise OperandError(
            f"a sparse tensor of PyTorch must have no dense dimensions; found {tensor.dense_dim()} of "
            f"{tensor.ndim}: construct it by torch.sparse_coo_tensor with one value for each element"
        )
    coo = tensor if tensor.layout == torch.sparse_coo else tensor.to_sparse_coo()
    # coalesce cannot add bool values. Equal coordinates are added when packing.
    packed = from_coo(tuple(coo.shape), coo._indices().numpy(), _plain(coo._values()), order, kinds)
    return replace(packed, dtype=np.dtype(dtype))


def _plain(tensor: Any) -> np.ndarray:
    """Return the array of a strided tensor, whose conjugation and sign may be pending."""
    return np.asarray(tensor.resolve_conj().resolve_neg().numpy())


def read_tns(
    path: str | Path,
    shape: Sequence[int] | None = None,
    order: Sequence[int] | None = None,
    kinds: Sequence[Kind] | None = None,
) -> SparseTensor:
    """Pack a file of FROSTT's text format.

    Parameters
    ----------
    path
        The file. Each line has the coordinates of an element, counted from 1, and its value; # begins a comment. A
        file whose name ends in .gz is decompressed.
    shape
        The extents of the modes; by default the largest coordinates. An empty file needs it.
    order, kinds
        See `from_coo`.

    Raises
    ------
    TensorFileError
        If the file is malformed. The message names the first malformed line.
    """
    path = Path(path)
    try:
        with warnings.catch_warnings(), _opened(path) as lines:
            warnings.filterwarnings("ignore", message=".*input contained no data")
            table = np.loadtxt(lines, ndmin=2)
    except ValueError as problem:
        raise _fault(path, shape) from problem
    if not len(table):
        if shape is None:
            raise TensorFileError(f"{path} has no elements, from which the shape would follow: pass `shape`")
        return from_coo(shape, np.zeros((len(shape), 0), np.int64), [], order, kinds)
    numbers = table[:, :-1].T
    limits = np.full(len(numbers), _LARGEST_INDEX) if shape is None else np.array(shape)
    if len(limits) != len(numbers) or not ((numbers >= 1) & (numbers <= limits[:, None])).all():
        raise _fault(path, shape)
    coordinates = numbers.astype(np.int64)
    if (coordinates != numbers).any():
        raise _fault(path, shape)
    coordinates -= 1
    extents = coordinates.max(axis=1) + 1 if shape is None else shape
    return from_coo(extents, coordinates, table[:, -1], order, kinds)


def _opened(path: Path) -> IO[str]:
    return gzip.open(path, "rt", encoding="latin1") if path.suffix == ".gz" else path.open(encoding="latin1")


def _fault(path: Path, shape: Sequence[int] | None) -> TensorFileError:
    """Return the error for the first malformed line."""
    width = None if shape is None else len(shape) + 1
    with _opened(path) as lines:
        for number, line in enumerate(lines, 1):
            fields = line.split("#")[0].split()
            if not fields:
                continue
            width = len(fields) if width is None else width
            if fault := _line_fault(fields, width, shape):
                return TensorFileError(f"{path}, line {number}: {fault}; found {line.strip()!r}")
    return TensorFileError(f"{path} cannot be read as lines of coordinates and a value")


def _line_fault(fields: list[str], width: int, shape: Sequence[int] | None) -> str | None:
    if len(fields) != width:
        return f"expected {width} numbers, {width - 1} coordinates and a value"
    try:
        *coordinates, _ = map(float, fields)
    except ValueError:
        return "expected numbers only"
    for mode, coordinate in enumerate(coordinates):
        if not coordinate.is_integer() or coordinate < 1:
            return f"coordinate {mode + 1} must be a whole number from 1"
        if coordinate > (_LARGEST_INDEX if shape is None else shape[mode]):
            return f"coordinate {mode + 1} must be at most {_LARGEST_INDEX if shape is None else shape[mode]}"
    return None
