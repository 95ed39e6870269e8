"""The description of a MACE model: immutable values of NumPy arrays that need neither PyTorch nor e3nn.

All normalisations are part of the arrays: path weights of linear layers, constants of activation functions, the average
number of neighbours, and the scale of the energy. All arrays are float64. A layer t computes, for the features h of the
nodes,

    x = up(h)                                       linear
    A[n] = sum over the edges of n of  w(r) Y(r) x[sender]        convolution
    m = linear(A) / denominator(n)                  denominator: 1, or of the learned density
    m = after(gate(m + residual(x)))                each of the three where the block has it
    h = product.linear(B(m)) + skip(h)              B: symmetric contraction

and the energy of an atom is atomic_energies[element] plus its interaction energy: the shift, all readouts, and the pair
repulsion. Some models also have readouts of dipole moments.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnqc.cg.problem.irreps import Irreps
from trnqc.cg.problem.problem import TPProblem

RADIAL_KINDS = ("bessel", "gaussian", "chebyshev")
TRANSFORM_KINDS = ("agnesi", "soft")


@dataclass(frozen=True, eq=False)
class Transform:
    """A transformation of distances before the radial basis, which depends on the elements of an edge.

    Parameters
    ----------
    kind : {"agnesi", "soft"}
    parameters : tuple of float
        (a, q, p) of the Agnesi transform, (alpha,) of the soft transform.
    radii : numpy.ndarray
        Covalent radius of each element of the model in Angstrom, [elements].

    Notes
    -----
    With the mean r0 of the two radii, the Agnesi transform is u(r) = 1 / (1 + a (r/r0)^q / (1 + (r/r0)^(q - p)))
    (Witt et al., J. Chem. Phys. 159, 164101 (2023)). With the sum r0 of the radii, p0 = 3/4 r0 and p1 = 4/3 r0, the
    soft transform is u(r) = p0 + (r - p0) (1 + tanh(alpha / (p1 - p0) (r - (p0 + p1) / 2))) / 2.
    """

    kind: str
    parameters: tuple[float, ...]
    radii: np.ndarray


@dataclass(frozen=True, eq=False)
class RadialBasis:
    """The radial functions of an edge of length r in Angstrom, and the cutoff function.

    Parameters
    ----------
    kind : {"bessel", "gaussian", "chebyshev"}
        Form of the functions of the transformed distance u: ``scale sin(parameters[k] u) / u``,
        ``exp(scale (u - parameters[k])^2)``, and the Chebyshev polynomial of degree ``parameters[k]``.
    parameters : numpy.ndarray
        One number for each function, [size].
    scale : float
        The constant in the first two forms; 1 for Chebyshev polynomials.
    r_max : float
        Cutoff distance in Angstrom.
    cutoff_order : int
        p of the cutoff function.
    transform : Transform, optional
        The transformation of r to u; without one, u = r.
    cutoff_on_weights : bool
        Whether the cutoff function multiplies the weights w(r) and the density of an edge, instead of the functions of
        the basis.

    Notes
    -----
    The cutoff function of x = r / r_max < 1 is f(x) = 1 - (p + 1)(p + 2)/2 x^p + p (p + 2) x^(p + 1)
    - p (p + 1)/2 x^(p + 2) (Gasteiger, Gross and Guennemann, ICLR 2020), where x contains r without the transform.
    """

    kind: str
    parameters: np.ndarray
    scale: float
    r_max: float
    cutoff_order: int
    transform: Transform | None
    cutoff_on_weights: bool

    @property
    def size(self) -> int:
        """Number of functions."""
        return len(self.parameters)


ACTIVATIONS = ("silu", "tanh", "abs")
"""The activation functions of readouts; radial networks have silu."""


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer of a network: z = x weight + bias, then normalisation and activation where the layer has them.

    Parameters
    ----------
    weight : numpy.ndarray
        [inputs, outputs], which includes the constant of the activation function of the preceding layer.
    bias : numpy.ndarray, optional
        [outputs].
    norm : (numpy.ndarray, numpy.ndarray, float), optional
        Gain [outputs], offset [outputs] and epsilon of a layer normalisation: z is replaced by
        gain (z - mean) / sqrt(variance + epsilon) + offset, with mean and biased variance over the outputs.
    act : str, optional
        The activation function that follows: "silu", z / (1 + exp(-z)), or in readouts also "tanh" or "abs".
    """

    weight: np.ndarray
    bias: np.ndarray | None = None
    norm: tuple[np.ndarray, np.ndarray, float] | None = None
    act: str | None = None


@dataclass(frozen=True, eq=False)
class RadialNetwork:
    """A network from the radial basis of an edge to its weights or its density.

    Parameters
    ----------
    layers : tuple of Layer
    sender, receiver : numpy.ndarray, optional
        What the elements of sender and receiver add to the first layer's outputs before its normalisation,
        [elements, outputs of the first layer].
    """

    layers: tuple[Layer, ...]
    sender: np.ndarray | None = None
    receiver: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Convolution:
    """The sum over edges A[receiver] = sum of uvu products of x[sender] and harmonics Y, with weights w(r).

    Parameters
    ----------
    problem : TPProblem
        The tensor product; its path weights contain all normalisation. The harmonics are e3nn's in component
        normalisation, sum over m of Y_lm^2 = 2 l + 1.
    weights : RadialNetwork
        The network of the weights w(r), in the order of the problem.
    """

    problem: TPProblem
    weights: RadialNetwork


@dataclass(frozen=True, eq=False)
class NodeDensity:
    """The learned density of a node: rho = sum over its edges of tanh(d(r)^2), which becomes a denominator.

    Parameters
    ----------
    network : RadialNetwork
        The network of d(r), with one output.
    slope, offset : float
        Messages are divided by slope rho + offset.
    """

    network: RadialNetwork
    slope: float
    offset: float


@dataclass(frozen=True, eq=False)
class Linear:
    """A linear layer that mixes the channels of slots of equal irreps.

    Parameters
    ----------
    irreps_in, irreps_out : Irreps
    blocks : tuple of (int, int, numpy.ndarray)
        Slot of the input, slot of the output, and the matrix from the first to the second: [mul_in, mul_out], or
        [elements, mul_in, mul_out] if it depends on the element of the node.
    """

    irreps_in: Irreps
    irreps_out: Irreps
    blocks: tuple[tuple[int, int, np.ndarray], ...]

    @property
    def by_element(self) -> bool:
        """Whether the matrices depend on the element."""
        return any(matrix.ndim == 3 for _, _, matrix in self.blocks)


@dataclass(frozen=True)
class Gate:
    """The gated non-linearity of messages.

    The output has a slot of even scalars, then n slots of higher degree. The input has n slots of gates, even scalars,
    between them, one gate for each channel. Scalars become scalar_constant silu(s), and other channels are multiplied
    by gate_constant sigmoid(gate).
    """

    irreps_in: Irreps
    irreps_out: Irreps
    scalar_constant: float
    gate_constant: float


@dataclass(frozen=True, eq=False)
class InteractionBlock:
    """An interaction block; the module's docstring says how its parts follow one another."""

    up: Linear
    convolution: Convolution
    linear: Linear
    density: NodeDensity | None = None
    residual: Linear | None = None
    gate: Gate | None = None
    after: Linear | None = None
    skip: Linear | None = None


@dataclass(frozen=True, eq=False)
class Coupling:
    """The part of order nu of a symmetric contraction to one irrep.

    Parameters
    ----------
    u : numpy.ndarray
        Coupling tensor [components of the output, d, ..., d, paths] with nu axes of d = all components of a channel of
        the input.
    weights : numpy.ndarray
        [elements, paths, channels].
    """

    u: np.ndarray
    weights: np.ndarray

    @property
    def order(self) -> int:
        return self.u.ndim - 2


@dataclass(frozen=True, eq=False)
class ProductBlock:
    """A product block: the symmetric contraction B, then a linear layer.

    B[c, M] = sum over orders nu and paths k of weights[element, k, c] u[M, i1 .. i_nu, k] m[c, i1] ... m[c, i_nu]

    Parameters
    ----------
    irreps_in, irreps_out : Irreps
        All slots have equal multiplicities.
    couplings : tuple of tuple of Coupling
        For each slot of the output the couplings of all orders, from 1 on.
    linear : Linear
    """

    irreps_in: Irreps
    irreps_out: Irreps
    couplings: tuple[tuple[Coupling, ...], ...]
    linear: Linear


@dataclass(frozen=True, eq=False)
class Readout:
    """The energy of an atom from the scalars of its features, by dense layers with one output in the end.

    The features of layer number `source` are read. Linear readouts have one layer.
    """

    source: int
    layers: tuple[Layer, ...]


@dataclass(frozen=True, eq=False)
class DipoleReadout:
    """The dipole moment of an atom in Debye from the vectors v and the scalars of its features, v weight summed up.

    Parameters
    ----------
    source : int
        The number of the layer whose features are read. Their first slot has the scalars.
    slot : int
        The slot of the features that has the vectors, odd irreps of degree 1.
    weight : numpy.ndarray
        [channels of the vectors, outputs].
    gates : Layer, optional
        Outputs are multiplied by those of this layer, [channels of the scalars, outputs], before they are summed up.
    """

    source: int
    slot: int
    weight: np.ndarray
    gates: Layer | None = None


@dataclass(frozen=True, eq=False)
class PairRepulsion:
    """The repulsion of Ziegler, Biersack and Littmark with a cutoff function.

    Parameters
    ----------
    screening : tuple of (float, float)
        Coefficients and exponents of the screening function phi(x) = sum of c exp(-d x).
    length : float
        a in Angstrom: x = r (Z1^exponent + Z2^exponent) / a.
    exponent : float
    cutoff_order : int
        p of the cutoff function (see `RadialBasis`) with r_max = the sum of the two radii.
    radii : numpy.ndarray
        Covalent radii of the model's elements in Angstrom, [elements].
    scale : float
        Factor of the energy.

    Notes
    -----
    Each edge adds scale / 2 * 14.3996 eV Angstrom * Z1 Z2 / r * phi(x) * f(r) to its receiver.
    """

    screening: tuple[tuple[float, float], ...]
    length: float
    exponent: float
    cutoff_order: int
    radii: np.ndarray
    scale: float


@dataclass(frozen=True, eq=False)
class Model:
    """A MACE model for one head.

    Parameters
    ----------
    numbers : tuple of int
        Atomic numbers of the elements, in the order of all arrays by element.
    basis : RadialBasis
    embedding : numpy.ndarray
        Features of a node before the first layer, [elements, channels].
    interactions : tuple of InteractionBlock
    products : tuple of ProductBlock
    readouts : tuple of Readout
        Their sum, which includes the model's scale, is a part of the interaction energy in eV.
    atomic_energies : numpy.ndarray
        Energies of isolated atoms in eV, [elements].
    shift : float
        The constant part of the interaction energy of each atom in eV.
    repulsion : PairRepulsion, optional
    head : str
        Name of the head.
    dtype : {"float32", "float64"}
        Type of the model's parameters.
    dipoles : tuple of DipoleReadout
        Their sum is the dipole moment of an atom. There are none for a model of energies only.
    """

    numbers: tuple[int, ...]
    basis: RadialBasis
    embedding: np.ndarray
    interactions: tuple[InteractionBlock, ...]
    products: tuple[ProductBlock, ...]
    readouts: tuple[Readout, ...]
    atomic_energies: np.ndarray
    shift: float
    repulsion: PairRepulsion | None
    head: str
    dtype: str
    dipoles: tuple[DipoleReadout, ...] = ()
