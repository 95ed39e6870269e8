"""The order of the steps of an evaluation.

first features -> geometry -> for each layer: densities; pass over ranges of atoms: convolution, atoms
              -> for each layer, backwards: pass: atoms, convolution; densities -> geometry -> pair repulsion
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trnqc.jit import NUMPY, CompiledFunction, Library, Recipe, library
from trnqc.mace.convolutions import Convolutions
from trnqc.mace.driver import programs
from trnqc.mace.driver.sharing import share_rows
from trnqc.mace.driver.steps import AtomPass, Buffer, DriverProgram, DriverStep, Operands, RowExchange
from trnqc.mace.edges.density import EdgeDensity
from trnqc.mace.edges.first.kernels import FirstConvolution
from trnqc.mace.edges.geometry.knots import Knots
from trnqc.mace.edges.geometry.programs import harmonics_size
from trnqc.mace.edges.graph import BLOCK
from trnqc.mace.edges.kernels import LayerConvolution
from trnqc.mace.model import Model
from trnqc.mace.nodes.kernels import ATOMS, NodeKernels

# The name of an array of edges whose parameter has the name of another thing.
CUTOFF: Operands = {"cutoff": "cutoff_values"}


def driver_program(model: Model, nodes: NodeKernels, parts: Convolutions, features: bool = False) -> DriverProgram:
    """Return the program of a model for the elements that its convolutions cover.

    With `features`, it is for structures without copies, and its exchanges hand out the features of one layer after the
    other.
    """
    return _Order(model, nodes, parts).program(features)


class _Order:
    """A program under construction."""

    def __init__(self, model: Model, nodes: NodeKernels, parts: Convolutions) -> None:
        self.model, self.nodes, self.parts, self.plan = model, nodes, parts, nodes.plan
        self.item = np.dtype(NUMPY[self.plan.dtype]).itemsize
        self.vector = self.item * self.plan.tile.lanes
        self.constants: dict[str, np.ndarray] = {}
        self.buffers: dict[str, Buffer] = {}
        self.common = self._common()

    def program(self, features: bool) -> DriverProgram:
        self._edge_buffers()
        self._node_buffers()
        order = self._steps_with_features() if features else self._steps()
        steps, buffers = share_rows(tuple(order), self.buffers)
        numbers = tuple(
            number if self.parts.covers(np.array([n])) else 0 for n, number in enumerate(self.model.numbers)
        )
        return DriverProgram(
            numbers,
            self.model.basis.r_max,
            self.item,
            ATOMS,
            self.parts.geometry.lanes,
            BLOCK,
            all(layer.paired for layer in self.parts.layers if isinstance(layer, LayerConvolution)),
            self.constants,
            buffers,
            steps,
        )

    # Memory

    def _edge_buffers(self) -> None:
        """Values of edges; arrays have some rows more than edges, because programs read whole blocks."""
        geometry, item = self.parts.geometry, self.item
        harmonics, size = harmonics_size(geometry.degree), geometry.basis.size
        widths = {"harmonics": harmonics * item, "radial": size * item, "slopes": size * item}
        splines = isinstance(geometry.basis, Knots)
        factors = not splines and self.model.basis.cutoff_on_weights
        widths |= {"lengths": 8, "cutoff_values": 2 * item if factors else 0, "intervals": 8 if splines else 0}
        cleared = {"g_harmonics": harmonics * item, "g_lengths": item, "g_vectors": 24}
        for t, density in enumerate(self.parts.densities):
            if density is not None:
                cleared |= {f"part{t}": item, f"slope{t}": item}
        for name, width in (widths | cleared).items():
            self.buffers[name] = Buffer({"edges": width, "one": width * BLOCK}, name in cleared)

    def _node_buffers(self) -> None:
        for name, width in self.nodes.widths.items():
            if not name.startswith("gx"):
                bytes_ = width * self.vector or self.item
                self.buffers[name] = Buffer({"atoms" if name.startswith("x") else "receiving": bytes_})
        self.buffers["energies"] = Buffer({"atoms": 8})
        for t, layer in enumerate(self.parts.layers):
            self.buffers[f"gx{t}"] = Buffer({"atoms_by_thread": layer.sent_bytes}, cleared=True)

    def _room(self, name: str, buffer: Buffer) -> None:
        """Make a buffer, which several steps may use, large enough."""
        self.buffers[name] = self.buffers[name].with_room_for(buffer) if name in self.buffers else buffer

    def _constant(self, name: str, array: np.ndarray) -> str:
        self.constants[name] = np.ascontiguousarray(array)
        return name

    # Steps

    def _common(self) -> Library:
        """The programs of `programs.py`, compiled."""
        plan = self.plan
        functions = [programs.begin(plan.dtype, plan.layers[0].sent.width)]
        functions += [programs.density(plan.dtype), programs.density_gradient(plan.dtype)]
        if self.model.repulsion:
            functions.append(programs.repulsion(self.model.repulsion))
        return library(Recipe.of(*functions, name="mace-graph"), plan.tile.lanes)

    def _steps(self) -> Iterator[DriverStep | AtomPass | RowExchange]:
        """All steps. The last layer has one pass, which computes its gradient too."""
        geometry, last = self.parts.geometry, len(self.plan.layers) - 1
        sent = self._constant("sent", self.plan.sent)
        energies = self._constant("constants", self.plan.constants)
        yield DriverStep(self.common.begin, "atoms", {"sent": sent, "constants": energies, "x": "x0"})
        self._constant("radii", geometry.radii)
        yield DriverStep(geometry.functions[0], "edge_vectors", CUTOFF)
        for t in range(last):
            yield from self._densities(t)
            yield AtomPass(tuple(self._forward(t)))
            yield RowExchange(f"x{t + 1}", self.parts.layers[t + 1].sent_bytes, reverse=False)
        yield from self._densities(last)
        yield AtomPass((*self._forward(last), *self._reverse(last)))
        yield from self._after(last)
        for t in reversed(range(last)):
            yield AtomPass(tuple(self._reverse(t)))
            yield from self._after(t)
        yield DriverStep(geometry.functions[1], "edge_vectors")
        if self.model.repulsion is not None:
            yield self._repulsion()

    def _steps_with_features(self) -> Iterator[DriverStep | AtomPass | RowExchange]:
        """All steps but the exchanges, and one of the features after each of the forward passes, which come first."""
        layers = iter(range(len(self.plan.layers)))
        for step in self._steps():
            if not isinstance(step, RowExchange):
                yield step
            if isinstance(step, AtomPass) and (t := next(layers, None)) is not None:
                yield RowExchange(f"h{t}", self.plan.layers[t].features.width * self.vector, reverse=False)

    def _densities(self, t: int) -> Iterator[DriverStep]:
        density = self.parts.densities[t]
        if density is not None:
            yield DriverStep(density.function, "threads", self._of_density(t, density))
            yield DriverStep(self.common.density, "receiving", {"part": f"part{t}", "rho": f"rho{t}"})

    def _forward(self, t: int) -> Iterator[DriverStep]:
        layer = self.parts.layers[t]
        yield DriverStep(layer.functions[0], "threads", self._of_layer(t, layer, 1) | {"x": f"x{t}", "z": f"a{t}"})
        for name in ("messages", "contraction_value", "features"):
            yield self._of_nodes(name, t)

    def _reverse(self, t: int) -> Iterator[DriverStep]:
        layer = self.parts.layers[t]
        for name in ("features_reverse", "contraction_gradient", "messages_reverse"):
            yield self._of_nodes(name, t)
        names: Operands = {"x": f"x{t}", "g_z": f"ga{t}", "g_x": f"gx{t}", "nodes": "atoms"}
        yield DriverStep(layer.functions[1], "threads", self._of_layer(t, layer, 2) | names)

    def _after(self, t: int) -> Iterator[DriverStep | RowExchange]:
        """The steps after the reverse pass of a layer."""
        layer = self.parts.layers[t]
        if t:
            yield DriverStep(self._add_threads(layer), "atoms", {"g_x": f"gx{t}"})
            yield RowExchange(f"gx{t}", layer.sent_bytes, reverse=True)
        if self.parts.densities[t] is not None:
            names: Operands = {"slope": f"slope{t}", "g_density": f"grho{t}"}
            yield DriverStep(self.common.density_gradient, "receiving", names)

    def _of_layer(self, t: int, layer: FirstConvolution | LayerConvolution, copies: int) -> Operands:
        """The operands of both programs of a convolution."""
        names: Operands = {}
        for name, size in layer.scratch_bytes(copies).items():
            # One thread may run one program of a pass while another thread runs the other one.
            names[name] = f"{name}_{copies}"
            self._room(f"{name}_{copies}", Buffer({"threads": size}))
        for name, value in layer.operands(copies).items():
            constant = f"{name}{t}_{copies}" if name == "matrices" else f"{name}{t}"
            names[name] = value if isinstance(value, int) else self._constant(constant, value)
        return CUTOFF | names

    def _of_density(self, t: int, density: EdgeDensity) -> Operands:
        names: Operands = {"shares": "threads", "part": f"part{t}", "slope": f"slope{t}"}
        for name, size in density.scratch_bytes.items():
            names[name] = f"density_{name}"
            self._room(f"density_{name}", Buffer({"threads": size}))
        names["pairs"] = self._constant(f"density_pairs{t}", density.pairs)
        names["parameters"] = self._constant(f"density_parameters{t}", density.parameters)
        return CUTOFF | names

    def _of_nodes(self, name: str, t: int) -> DriverStep:
        function = self.nodes.functions[f"{name}{t}"]
        names: Operands = {"parameters": self._constant("parameters", self.plan.parameters)}
        if name.startswith("contraction"):
            names |= {"blocks": self.plan.layers[t].messages.vectors[0], "starts": "block_starts"}
            names |= {"elements": "block_elements", "c": self._constant(f"coefficients{t}", self.plan.coefficients[t])}
            names |= {"x": f"m{t}", "out": f"gm{t}" if name.endswith("gradient") else f"b{t}", "gb": f"gb{t}"}
        return DriverStep(function, "block_count", names)

    def _add_threads(self, layer: FirstConvolution | LayerConvolution) -> CompiledFunction:
        width = layer.sent_bytes // self.vector
        recipe = Recipe.of(programs.add_threads(self.plan.dtype, width), name="mace-threads")
        return library(recipe, self.plan.tile.lanes).add_threads

    def _repulsion(self) -> DriverStep:
        pair, numbers = self.model.repulsion, np.array(self.model.numbers, np.float64)
        assert pair is not None
        self._constant("charges", numbers)
        self._constant("strengths", numbers**pair.exponent / pair.length)
        self._constant("covalent", np.asarray(pair.radii, np.float64))
        return DriverStep(self.common.pair_repulsion, "receiving")
