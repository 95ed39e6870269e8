"""`pyscf.lib.einsum` and `pyscf.lib.contract` by trnqc's contractions.

PySCF multiplies two tensors by BLAS only where every index occurs exactly twice, and by NumPy's loop over all indices
otherwise, as for indices of a batch. Products of several tensors look for an order in every call. Here each step that
can be a product of matrices is one, and orders are kept.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from pyscf import lib
from pyscf.lib import numpy_helper

from trnqc.contraction.api import einsum as our_einsum
from trnqc.contraction.eager import numpy_run
from trnqc.errors import UnsupportedError

_PYSCF_EINSUM, _PYSCF_CONTRACT = numpy_helper.einsum, numpy_helper.contract
_LOCK = threading.Lock()

SMALL = 10_000
"""Below this product of the sizes of two operands NumPy's loop takes less time than the choice of a better way."""


def contract(subscripts: str, A: Any, B: Any, alpha: Any = 1, beta: Any = 0, out: Any = None, **kwargs: Any) -> Any:
    """Return alpha times the product of two tensors plus beta times `out`.

    Parameters
    ----------
    subscripts : str
        Subscripts of `numpy.einsum` for two operands.
    A, B : array_like
        The operands; HDF5 datasets are read.
    alpha, beta : scalar
        Factors of the product and of `out`.
    out : ndarray, optional
        Array that is overwritten with the result and returned.
    **kwargs
        Accepted and not used, as in PySCF.

    Returns
    -------
    ndarray
    """
    return _scaled(_pair(subscripts, np.asarray(A), np.asarray(B)), alpha, beta, out)


def einsum(scripts: str, *tensors: Any, **kwargs: Any) -> Any:
    """Return the product of tensors, as `pyscf.lib.einsum` does.

    Parameters
    ----------
    scripts : str
        Subscripts of `numpy.einsum`.
    *tensors : array_like
        The operands; HDF5 datasets are read.
    **kwargs
        `alpha`, `beta` and `out` as in `contract`; `optimize` may be a path. With any other argument PySCF's function
        is called.

    Returns
    -------
    ndarray
    """
    if len(tensors) == 2 and not kwargs:
        return _pair(scripts, np.asarray(tensors[0]), np.asarray(tensors[1]))
    arrays = tuple(np.asarray(x) for x in tensors)
    if kwargs.keys() - {"alpha", "beta", "out", "optimize"}:
        return _PYSCF_EINSUM(scripts, *tensors, **kwargs)
    # Names of planners and booleans stand for our own order, a path is followed.
    path = kwargs.pop("optimize", True)
    return _scaled(_product(scripts, arrays, path if isinstance(path, list | tuple) else None), **kwargs)


def _pair(subscripts: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.size * b.size <= SMALL:
        return np.einsum(subscripts, a, b)
    return _product(subscripts, (a, b))


def _product(subscripts: str, arrays: tuple[np.ndarray, ...], path: Any = None) -> np.ndarray:
    run = numpy_run(subscripts, arrays) if path is None else None
    if run is not None:
        return run(arrays)
    return our_einsum(subscripts, *arrays, check_finite=False, optimize=True if path is None else path)


def _scaled(product: np.ndarray, alpha: Any = 1, beta: Any = 0, out: Any = None) -> np.ndarray:
    if alpha != 1:
        product = product * alpha
    if out is None:
        return product
    if beta == 0:
        out[...] = product
    else:
        out *= beta
        out += product
    return out


@contextmanager
def installed() -> Iterator[None]:
    """Use trnqc's contractions for `pyscf.lib.einsum` and `pyscf.lib.contract` within a ``with`` block.

    The functions are replaced for the whole process. Modules of PySCF that keep `einsum` under a name of their own call
    it with our `contract` for each product of two tensors.

    Raises
    ------
    UnsupportedError
        If they are replaced already, or if PySCF is configured to use TBLIS, which is its own replacement.

    Examples
    --------
    >>> import numpy as np
    >>> from pyscf import lib
    >>> from trnqc.interfaces import pyscf_einsum
    >>> t, v = np.ones((3, 3, 20, 20)), np.ones((3, 3, 20, 20))
    >>> with pyscf_einsum.installed():
    ...     print(float(lib.einsum("ijab,ijab->", t, v)))
    3600.0
    """
    with _LOCK:
        if numpy_helper.contract is not _PYSCF_CONTRACT:
            raise UnsupportedError("pyscf.lib.contract is replaced already; blocks of installed() cannot be nested")
        if numpy_helper.EINSUM_BACKEND is not None:
            raise UnsupportedError(
                f"PySCF's einsum uses {numpy_helper.EINSUM_BACKEND!r}; uninstall it to use trnqc's contractions"
            )
        _replace(einsum, contract)
    try:
        yield
    finally:
        with _LOCK:
            _replace(_PYSCF_EINSUM, _PYSCF_CONTRACT)


def _replace(new_einsum: Any, new_contract: Any) -> None:
    for module in (numpy_helper, lib):
        module.einsum, module.contract = new_einsum, new_contract
