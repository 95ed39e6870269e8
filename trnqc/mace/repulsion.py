"""The pair repulsion of a model: energies of the receivers and the gradient of the vectors, in float64 by NumPy.

Only edges shorter than the sum of two covalent radii contribute, which are few, so that a generated program would not
be worth its compilation.
"""

from __future__ import annotations

import numpy as np

from trnqc.mace.model import PairRepulsion

# e^2 / (4 pi epsilon_0) in eV Angstrom, as MACE rounds it.
COULOMB = 14.3996


def add_repulsion(
    pair: PairRepulsion,
    numbers: np.ndarray,
    ends: tuple[np.ndarray, np.ndarray],
    vectors: np.ndarray,
    energies: np.ndarray,
    g_vectors: np.ndarray,
) -> None:
    """Add the repulsion to the energies of the atoms and to the gradient of the vectors.

    Parameters
    ----------
    pair : PairRepulsion
    numbers : numpy.ndarray
        Atomic numbers of the model's elements [elements].
    ends : (numpy.ndarray, numpy.ndarray)
        Receiver of each edge, and the elements of sender and receiver [2, edges].
    vectors : numpy.ndarray
        [edges, 3] in Angstrom.
    energies, g_vectors : numpy.ndarray
        Float64 [atoms] in eV, and [edges, 3] in eV/Angstrom.
    """
    receivers, elements = ends
    lengths = np.sqrt(np.einsum("ek,ek->e", vectors, vectors))
    reach = pair.radii[elements].sum(axis=0)
    near = np.flatnonzero(lengths < reach)
    r, z = lengths[near], numbers[elements[:, near]].astype(np.float64)
    value, slope = _energy(pair, r, z, reach[near])
    np.add.at(energies, receivers[near], value)
    g_vectors[near] += (slope / r)[:, None] * vectors[near]


def _energy(pair: PairRepulsion, r: np.ndarray, z: np.ndarray, reach: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The energy of each edge and its derivative with respect to the length r."""
    inverse = (z**pair.exponent).sum(axis=0) / pair.length
    terms = [c * np.exp(-d * inverse * r) for c, d in pair.screening]
    phi = sum(terms)
    d_phi = -inverse * sum(d * term for term, (_, d) in zip(terms, pair.screening))
    f, d_f = _cutoff(r / reach, pair.cutoff_order)
    scale = 0.5 * pair.scale * COULOMB * z[0] * z[1] / r
    return scale * phi * f, scale * (d_phi * f + phi * d_f / reach - phi * f / r)


def _cutoff(x: np.ndarray, p: int) -> tuple[np.ndarray, np.ndarray]:
    """The polynomial cutoff function of `RadialBasis` and its derivative by x, for x < 1."""
    f = 1 - x**p * ((p + 1) * (p + 2) / 2 - p * (p + 2) * x + p * (p + 1) / 2 * x * x)
    return f, -p * (p + 1) * (p + 2) / 2 * x ** (p - 1) * (1 - x) ** 2
