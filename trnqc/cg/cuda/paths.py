"""The work of a GPU's lanes for one path: formulas of programs/ on values in registers and in shared memory.

uvu: A lane computes the same channels of x, of the weights and of the output.
uvw: The products t = P(x, y) of the lanes' channels are in shared memory. For z += W t and gw = t gz the lanes compute
     channels w of the output. For h = W gz, the gradient of t, they compute channels u, from tiles of W in shared
     memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from trnqc.cg.cuda import resident
from trnqc.cg.cuda.couplings import Couplings, PathCoupling
from trnqc.cg.cuda.kernel import ChannelBlock, Edge, KernelBuilder, Values
from trnqc.cg.cuda.lane_couplings import ARRAYS
from trnqc.cg.problem.instructions import PathInstruction
from trnqc.cg.programs.coupling import Components, CouplingMatrix, contracted, sum_of_products
from trnqc.cg.programs.directions import DirectionTerm
from trnqc.cg.programs.uvu import Update, UvuChannel
from trnqc.gen import Value
from trnqc.gen.build import dot
from trnqc.gen.values import minimum, select

# Arrays in shared memory for the product t of each term of a direction.
PRODUCTS = ("t", "t2")
# Arrays in shared memory for a tile of the weights of each term of a direction.
TILES = ("tile", "tile2")


@dataclass(frozen=True)
class Registers:
    """The values of an edge in the registers of a lane.

    `gx` is empty if the direction has no such gradient, `gz` and `output` also if they are in shared memory.
    """

    x: Mapping[str, Values]
    gx: Values
    gz: Values
    output: Values


@dataclass(frozen=True)
class PathWriter:
    """Writes the statements of a path for channel v of y, whose couplings (`table`) are in shared memory."""

    k: KernelBuilder
    block: ChannelBlock
    edge: Edge
    registers: Registers
    number: int
    table: Couplings
    v: Value

    @property
    def path(self) -> PathInstruction:
        return self.k.path(self.number)

    @property
    def coupling(self) -> PathCoupling:
        return self.table.paths[self.number]

    @property
    def dims(self) -> tuple[int, int]:
        l1, _, l3 = self.k.problem.degrees(self.path)
        return 2 * l1 + 1, 2 * l3 + 1

    def write(self) -> None:
        """Write the path under a heading."""
        with self.k.b.block(f"path {self.number}: {self.k.problem.irreps_out[self.path.i_out].ir}"):
            a = {name: self._coupling(ARRAYS[name]) for name in self.k.direction.reading("y")}
            if self.path.connection_mode == "uvw":
                self._uvw(a)
            else:
                self._uvu(a)

    def _coupling(self, name: str) -> CouplingMatrix:
        forms = self.coupling.forms
        numbers = sorted({form for form, _ in forms.values()})
        values = {form: self.k.b.let(name, self.k.shared[name][form]) for form in numbers}
        return CouplingMatrix({pair: (values[form], sign) for pair, (form, sign) in forms.items()}, self.k.dtype)

    def _uvu(self, a: Mapping[str, CouplingMatrix]) -> None:
        k, direction, slopes = self.k, self.k.direction, []
        channels = [self._channel(q, a) for q in range(self.block.phase.channels)]
        if direction.output:
            for q, channel in enumerate(channels):
                channel.outputs(partial(self._add_output, q))
        if direction.gradients:
            places = [self._weight("gw", u) for u in self.block.channel] if channels[0].weights else []
            sums = self._weight_sums(places)
            for q, channel in enumerate(channels):
                gradients = channel.inputs(partial(self._add_gx, q))
                if channel.weights:
                    k.b.store(places[q], dot(gradients.w, sums[q]))
                slopes.append((q, gradients.left, gradients.right))
            self._add_gy(slopes)

    def _channel(self, q: int, a: Mapping[str, CouplingMatrix]) -> UvuChannel:
        k, registers = self.k, self.registers
        weights = {name: k.b.let(name, self._weight(name, self.block.channel[q])) for name in self._weights}
        x = {name: dict(enumerate(values[q])) for name, values in registers.x.items()}
        return UvuChannel(k.b, k.direction, a, x, weights, self.dims[1], registers.gz[q] if registers.gz else ())

    def _weight_sums(self, places: Sequence[Value]) -> list[Value] | list[None]:
        """Return the sums over previous edges to which gradients of shared weights are added; None for other weights.

        Lanes that repeat a channel read the same sum, since all read before any of them writes.
        """
        k = self.k
        if not (k.sums_weights and places):
            return [None] * len(places)
        sums = [k.b.let("sum", place) for place in places]
        k.b.barrier()
        return sums

    @property
    def _weights(self) -> tuple[str, ...]:
        return self.k.direction.reading("w") if self.path.has_weight else ()

    def _weight(self, name: str, u: Value) -> Value:
        mul2 = self.path.path_shape[1]
        return self.k.array(name)[self._first_weight(name) + ((u * mul2 + self.v) if mul2 > 1 else u)]

    def _first_weight(self, name: str) -> Value:
        return self.k.row(name, self.edge) * self.k.problem.weight_numel + self.path.weight_offset

    def _add_output(self, q: int, n: int, update: Update) -> None:
        k, slot = self.k, self.path.i_out
        if slot in k.plan.resident:
            kept = resident.place(k, slot, self.block.own[q])
            element = k.shared[f"{k.direction.output}_kept"][kept + n]
            k.b.store(element, update(element))
        else:
            k.b.assign(self.registers.output[q][n], update(self.registers.output[q][n]))

    def _add_gx(self, q: int, i: int, update: Update) -> None:
        self.k.b.assign(self.registers.gx[q][i], update(self.registers.gx[q][i]))

    def _add_gy(self, slopes: list[tuple[int, Components, Components]]) -> None:
        """Add sum_ik C[i, j, k] G[i, k], with G summed over the lane's channels, to the lane's sums of gy."""
        k = self.k
        masked = [(self._masked(q, left), right) for q, left, right in slopes]
        pairs = {(i, n): [(left[i], right[n]) for left, right in masked] for i, n in self.coupling.forms}
        grams = {pair: k.b.let("g", dot(products)) for pair, products in pairs.items()}
        for j, value in contracted(self.coupling.terms, grams).items():
            element = k.shared["partial"][k.lane * self.table.pitch + self.coupling.y[j]]
            k.b.store(element, element + value)

    def _masked(self, q: int, values: Components) -> Components:
        """Set the values of lanes that repeat a channel to zero."""
        valid = self.block.valid[q]
        if valid is None:
            return values
        return [self.k.b.let("own", select(valid, values[i], self.k.zero)) for i in range(self.dims[0])]

    def _uvw(self, a: Mapping[str, CouplingMatrix]) -> None:
        k, (d1, d3) = self.k, self.dims
        terms = k.direction.terms(weighted=True)
        x = {name: values[0] for name, values in self.registers.x.items()}
        rows = k.b.let("rows", minimum(self.path.path_shape[0] - self.block.first, k.lanes))
        for n, term in enumerate(terms):
            pairs = [(a[y], x[name]) for name, y in term.products]
            for m in range(d3):
                k.b.store(k.shared[PRODUCTS[n]][k.lane * d3 + m], sum_of_products(pairs, m))
        k.b.barrier()
        if k.direction.gradients:
            h = self._product_gradients(terms, rows)
            for i in range(d1):
                total = self.registers.gx[0][i]
                for n, term in enumerate(terms):
                    total = a[term.at[1]].transposed(h[n], i, total)
                k.b.assign(self.registers.gx[0][i], total)
            self._add_gy([(0, x[term.at[0]], h[n]) for n, term in enumerate(terms)])
        if k.direction.output:
            self._mixed_outputs(terms, rows)
        k.b.barrier()

    def _element(self, name: str, u: Value, w: Value) -> Value:
        """Return the weight from channel u of the block to channel w of the output."""
        _, mul2, mul3 = self.path.path_shape
        return self.k.array(name)[self._first_weight(name) + ((self.block.first + u) * mul2 + self.v) * mul3 + w]

    def _mixed_outputs(self, terms: tuple[DirectionTerm, ...], rows: Value) -> None:
        """Add W t of all terms to z in shared memory."""
        k, b, d3, mul3 = self.k, self.k.b, self.dims[1], self.path.path_shape[2]
        with b.loop("to", mul3, step=k.lanes) as start:
            own = b.let("to_own", start + k.lane)
            w = b.let("to_w", minimum(own, mul3 - 1))
            sums = [b.declare("sum", k.zero) for _ in range(d3)]
            with b.loop("from_u", rows) as u:
                for term, t in zip(terms, PRODUCTS):
                    factor = b.let(term.w, self._element(term.w, u, w))
                    for n, total in enumerate(sums):
                        b.assign(total, dot([(factor, k.shared[t][u * d3 + n])], total))
            at = resident.place(k, self.path.i_out, own)
            for n, total in enumerate(sums):
                element = k.shared[f"{k.direction.output}_kept"][at + n]
                b.store(element, element + total)

    def _product_gradients(self, terms: tuple[DirectionTerm, ...], rows: Value) -> Values:
        """Return h = W gz of the lane's channel of x for every term; gw = t gz is stored in the same loop."""
        k, b, d3, mul3 = self.k, self.k.b, self.dims[1], self.path.path_shape[2]
        h = [[b.declare("h", k.zero) for _ in range(d3)] for _ in terms]
        pitch, kept = k.lanes + 1, k.shared["gz_kept"]
        # Rows of a tile beyond the last channel of x are never written.
        row = b.let("row", self.block.channel[0] - self.block.first)
        with b.loop("to", mul3, step=k.lanes) as start:
            w = b.let("to_w", minimum(start + k.lane, mul3 - 1))
            at = resident.place(k, self.path.i_out, w)
            gz = [b.let("gz", kept[at + n]) for n in range(d3)]
            with b.loop("from_u", rows) as u:
                for term, tile in zip(terms, TILES):
                    b.store(k.shared[tile][u * pitch + k.lane], self._element(term.w, u, w))
                element = self._element("gw", u, w)
                (total,) = self._weight_sums([element])
                b.store(element, dot([(k.shared[PRODUCTS[0]][u * d3 + n], g) for n, g in enumerate(gz)], total))
            b.barrier()
            with b.loop("to_w", minimum(mul3 - start, k.lanes)) as n3:
                at = resident.place(k, self.path.i_out, start + n3)
                for sums, tile in zip(h, TILES):
                    factor = b.let("factor", k.shared[tile][row * pitch + n3])
                    for n, total in enumerate(sums):
                        b.assign(total, dot([(factor, kept[at + n])], total))
            b.barrier()
        return h
