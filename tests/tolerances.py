"""Every numerical tolerance of the tests by precision, each with its reason."""

from __future__ import annotations

# Error of a dot product over the sum of its terms' magnitudes: each factor is rounded (2^-53, 2^-24, 2^-9), and sums
# of up to a few hundred terms add a few roundings. The bf16 split in two rounds each lo (2^-18), drops lo.lo (2^-18).
# Splits into more parts are as accurate as fp32, because their products are added up in it.
PRODUCT = {"fp64": 1e-14, "fp32": 2e-6, "bf16x15": 2e-6, "bf16x6": 2e-6, "bf16x3": 1.5e-5, "bf16": 5e-3}

# Relative error of a pair's energy, against the sum of the magnitudes of its terms: twice the error of T, as E ~ T^2.
PAIR_ENERGY = {precision: 2 * error for precision, error in PRODUCT.items()}

# Hartree, whole correlation energy of a molecule against fp64 with the same factors: what a user is promised.
MOLECULE_ENERGY = {"fp64": 1e-9, "fp32": 1e-6, "bf16x15": 1e-6, "bf16x6": 1e-6, "bf16x3": 1e-6, "bf16": 5e-3}
