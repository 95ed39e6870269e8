"""The backend and the precision of a call: by name, or the cheapest precision that meets an error."""

from __future__ import annotations

from dataclasses import dataclass

from nki_kernels.precision import splits
from trnqc import backends
from trnqc.errors import InputError, UnsupportedPrecision
from trnqc.types import PRECISIONS

# Largest error of a product over the sum of the magnitudes of its terms, for sums of up to some thousand terms. That of
# fp64 is 32 times the rounding of one addition, as the others are where they accumulate in fp32.
_PROMISES = {"fp64": 2.0**-48} | {name: form.error for name, form in splits.PRECISIONS.items()}
# By the passes of the tensor engine: 1, 3, 4, 6, 15; fp64 is only on the CPU and on NVIDIA GPUs.
_CHEAPEST_FIRST = ("bf16", "bf16x3", "fp32", "bf16x6", "bf16x15", "fp64")


@dataclass(frozen=True)
class Choice:
    """How a call runs.

    Attributes
    ----------
    backend : str
        The name of the backend.
    precision : str
        One of `trnqc.types.PRECISIONS`.
    note : str
        Why the backend was chosen.
    """

    backend: str
    precision: str
    note: str


def promised_error(precision: str) -> float:
    """The largest error of a product in a precision, relative to the sum of the magnitudes of its terms.

    Raises
    ------
    UnsupportedPrecision
        If there is no such precision.

    Examples
    --------
    >>> promised_error("fp32") < promised_error("bf16x3") < 1e-4
    True
    """
    if precision not in _PROMISES:
        raise UnsupportedPrecision(f"precision is one of {', '.join(_PROMISES)}; found {precision!r}")
    return _PROMISES[precision]


def choose(backend: str = "auto", precision: str | None = None, target_error: float | None = None) -> Choice:
    """Choose the backend and the precision of a call.

    Parameters
    ----------
    backend : str
        The name of a backend, or "auto": a usable Trainium device that has the precision, else the CPU.
    precision : str, optional
        One of `trnqc.types.PRECISIONS`. By default fp64, or fp32 on a backend without fp64.
    target_error : float, optional
        Instead of a precision, the largest error relative to the sum of the magnitudes of the terms of each element,
        |a| @ |b|. The cheapest precision of the backend that promises it is chosen.

    Returns
    -------
    Choice
        The choice, in words where it needs a reason.

    Raises
    ------
    InputError
        If both a precision and an error are given, or one of the arguments is invalid.
    UnsupportedPrecision
        If the backend does not have the precision, or none that meets the error.
    BackendUnavailable
        If the backend cannot run here.

    Examples
    --------
    >>> choose("simulator", target_error=1e-4).precision
    'bf16x3'
    >>> choose("cpu").precision
    'fp64'
    """
    if precision is not None and target_error is not None:
        raise InputError(f"give a precision or a target_error; found both: {precision!r} and {target_error!r}")
    if precision is not None and precision not in PRECISIONS:
        raise InputError(f"precision is one of {', '.join(PRECISIONS)}; found {precision!r}")
    if precision is None:
        precision = _default(backend) if target_error is None else _cheapest(backend, target_error)
    selection = backends.select(backend, precision)
    return Choice(selection.backend.name, precision, selection.note)


def _default(backend: str) -> str:
    if backend == "auto":
        return "fp64"
    return "fp64" if "fp64" in backends.get(backend).precisions or not backends.get(backend).precisions else "fp32"


def _cheapest(backend: str, target_error: float) -> str:
    if not isinstance(target_error, int | float) or not 0.0 < target_error < float("inf"):
        raise InputError(f"target_error is a positive number; found {target_error!r}")
    # "auto" may end on the CPU, which has all precisions; which are the cheapest there depends on the same table.
    available = backends.get("cpu" if backend == "auto" else backend).precisions
    for name in _CHEAPEST_FIRST:
        if name in available and _PROMISES[name] <= target_error:
            return name
    if not available:
        return "fp64"
    best = min((name for name in available if name in _PROMISES), key=lambda name: _PROMISES[name])
    raise UnsupportedPrecision(
        f"backend {backend!r} has no precision with an error of {target_error:.3g}; its best is {best} with "
        f"{_PROMISES[best]:.3g}"
    )
