"""e3nn's normalisation of tensor products: the factor of each path, from assumed variances."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt
from typing import Any

from trnqc.cg.problem.irreps import Irreps
from trnqc.cg.problem.modes import MODES
from trnqc.errors import InputError


def path_weights(
    paths: Sequence[Any],
    slots: tuple[Irreps, ...],
    variances: tuple[tuple[float, ...], ...],
    irrep_normalization: str,
    path_normalization: str,
) -> list[float]:
    """Return the path weights that normalise the variance of the output, with e3nn's order of operations.

    `variances` are those of each slot of x, y and z. `irrep_normalization` normalises the variance of the components or
    the norm of z; with `path_normalization` all elements, or all paths, that add to a slot of z have the same
    influence.
    """
    by_irrep = one_of("irrep_normalization", irrep_normalization, ("component", "norm", "none"))
    by_path = one_of("path_normalization", path_normalization, ("element", "path", "none"))
    in1_var, in2_var, out_var = variances

    def spread(path: Any) -> float:
        muls = slots[0][path.i_in1].mul, slots[1][path.i_in2].mul
        return in1_var[path.i_in1] * in2_var[path.i_in2] * MODES[path.connection_mode].summed(*muls)

    weights = []
    for path in paths:
        one, two, three = (irreps[i].ir for irreps, i in zip(slots, (path.i_in1, path.i_in2, path.i_out)))
        alpha: float = {"component": three.dim, "norm": one.dim * two.dim, "none": 1}[by_irrep]
        siblings = [other for other in paths if other.i_out == path.i_out]
        of_paths = {"element": sum(map(spread, siblings)), "path": spread(path) * len(siblings), "none": 1.0}[by_path]
        alpha = alpha / of_paths if of_paths > 0 else alpha
        weights.append(sqrt(alpha * out_var[path.i_out] * path.path_weight))
    return weights


def variances_of(name: str, values: Sequence[float] | None, irreps: Irreps) -> tuple[float, ...]:
    """Return one variance for each slot, 1 by default. Raises InputError."""
    if values is None:
        return (1.0,) * len(irreps)
    if len(values) != len(irreps) or not all(0 <= v < inf for v in map(float, values)):
        raise InputError(f"{name}: expected {len(irreps)} variances >= 0, one a slot of {irreps}; found {values}")
    return tuple(map(float, values))


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """Return the value if it is allowed. Raises InputError otherwise."""
    if value not in allowed:
        raise InputError(f"{name}: expected {', '.join(allowed[:-1])} or {allowed[-1]}; found {value!r}")
    return value
