"""The radial embedding and the pair repulsion of a MACE model as descriptions."""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc.mace.model import PairRepulsion, RadialBasis, Transform
from trnqc.mace.reader.linears import array, expect

# Exponents of the screening function of Ziegler, Biersack and Littmark (1985) in units of 1 / screening length.
ZBL_EXPONENTS = (3.2, 0.9423, 0.4028, 0.2016)
# The Bohr radius in Angstrom as MACE's pair repulsion rounds it.
BOHR = 0.529


def basis(module: Any, numbers: tuple[int, ...]) -> RadialBasis:
    """The radial basis of a `RadialEmbeddingBlock`."""
    name = "radial_embedding"
    kind = expect(f"{name}.bessel_fn", module.bessel_fn, "BesselBasis", "GaussianBasis", "ChebychevBasis")
    expect(f"{name}.cutoff_fn", module.cutoff_fn, "PolynomialCutoff")
    function = module.bessel_fn
    if kind == "BesselBasis":
        form, parameters, scale = "bessel", function.bessel_weights, float(function.prefactor)
    elif kind == "GaussianBasis":
        form, parameters, scale = "gaussian", function.gaussian_weights, float(function.coeff)
    else:
        form, parameters, scale = "chebyshev", function.n[0], 1.0
    return RadialBasis(
        form,
        array(parameters),
        scale,
        float(module.cutoff_fn.r_max),
        int(module.cutoff_fn.p),
        _transform(getattr(module, "distance_transform", None), numbers),
        cutoff_on_weights=not getattr(module, "apply_cutoff", True),
    )


def _transform(module: Any, numbers: tuple[int, ...]) -> Transform | None:
    if module is None:
        return None
    name = "radial_embedding.distance_transform"
    radii = array(module.covalent_radii)[list(numbers)]
    if expect(name, module, "AgnesiTransform", "SoftTransform") == "AgnesiTransform":
        return Transform("agnesi", (float(module.a), float(module.q), float(module.p)), radii)
    return Transform("soft", (float(module.alpha),), radii)


def repulsion(module: Any, numbers: tuple[int, ...], scale: float) -> PairRepulsion:
    """The pair repulsion of a `ZBLBasis`, its energy multiplied by `scale`."""
    expect("pair_repulsion_fn", module, "ZBLBasis")
    screening = tuple(zip(map(float, array(module.c)), ZBL_EXPONENTS))
    radii = np.ascontiguousarray(array(module.covalent_radii)[list(numbers)])
    return PairRepulsion(screening, BOHR * float(module.a_prefactor), float(module.a_exp), int(module.p), radii, scale)
