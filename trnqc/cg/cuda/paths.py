"""What one path does with an edge's values in registers: A and B are couplings of y and of ggy.

t = A x, t' = A ggx + B x            (sums over i; lanes are channels u)
h = w gz, h' = ggw gz                (uvu; in uvw sums over the output's channels)
z += w t                             (uvw: sums over u, lanes are output channels)
gx += A h                            gw = <t, gz>, written <x, A gz>
gy += sum C x h                      with the sum over a lane's channels taken first
gx' += A h' + B h    gw' = <t', gz>    ggz' += w t' + ggw t    gy' += sum C (ggx h + x h')
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from trnqc.cg.cuda.couplings import Couplings, PathCoupling
from trnqc.gen import Value, const
from trnqc.gen import statements as st
from trnqc.gen.build import dot
from trnqc.gen.values import fma, minimum, select

if TYPE_CHECKING:
    from trnqc.cg.cuda.program import Kernel, Values
    from trnqc.cg.problem.problem import Instruction

Signed = dict[tuple[int, int], tuple[Value, int]]  # (i, k) -> value, sign


class Paths:
    """Writes paths of the phase at hand into a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.k, self.out = kernel, kernel.write

    def write(self, number: int, table: Couplings, v: Value) -> None:
        k = self.k
        self.path: Instruction = k.path(number)
        self.coupling: PathCoupling = table.paths[number]
        self.v, self.pitch = v, len(table.y) | 1
        self.d1, _, self.d3 = (2 * l + 1 for l in k.problem.degrees(self.path))
        with self.out.block(f"path {number}: {k.problem.irreps_out[self.path.i_out].ir}"):
            self.a = self._signed("a")
            self.b = self._signed("b") if k.work.double else {}
            if self.path.connection_mode == "uvw":
                self._mixed()
            else:
                self._uvu()

    def _signed(self, name: str) -> Signed:
        array, held = self.k.shared[name], {}
        for form in sorted({form for form, _ in self.coupling.at.values()}):
            held[form] = self.out.let(name, array[form])
        return {at: (held[form], sign) for at, (form, sign) in self.coupling.at.items()}

    def along(self, signed: Signed, values: list[Value], axis: int, index: int, start: Value | None = None) -> Value:
        """sum_i A[i, index] values[i] for axis 0, sum_k A[index, k] values[k] for axis 1."""
        pairs = []
        for (i, k), (a, sign) in signed.items():
            if (k, i)[axis] == index:
                pairs.append((a if sign > 0 else -a, values[(i, k)[axis]]))
        if not pairs:
            return start if start is not None else self.k.zero()
        return dot(pairs, start)

    # uvu: a lane's channel is that of x, of the weight and of the output

    def weight(self, name: str, u: Value) -> Value | None:
        if not self.path.has_weight:
            return None
        k, mul2 = self.k, self.path.path_shape[1]
        row = k.row(name) * k.problem.weight_numel + self.path.weight_offset
        return k.array(name)[row + ((u * mul2 + self.v) if mul2 > 1 else u)]

    def weights(self, name: str) -> list[Value | None]:
        found = [self.weight(name, u) for u in self.k.u]
        return [None if w is None else self.out.let(name, w) for w in found]

    def _uvu(self) -> None:
        k = self.k
        w = self.weights("w")
        if not k.work.double:
            if k.out:
                self._forward(k.x["x"], w)
            else:
                self._backward(w)
            return
        ggw = self.weights("ggw")
        x, ggx = k.x["x"], k.x["ggx"]
        # Of a path without weights h is gz and h' is nothing.
        p = [[self._product(w[q], v, ggw[q], x[q][i]) for i, v in enumerate(ggx[q])] for q in range(len(x))]
        wx = [self._scaled("wx", w[q], x[q]) for q in range(len(x))]
        if k.out:
            for q in range(len(x)):
                for n in range(self.d3):
                    self._add_along(q, n, (self.a, p[q]), (self.b, wx[q]))
        if "gx" in k.work.writes:
            self._double_gradients(w, ggw, p)

    def _add_along(self, q: int, n: int, *products: tuple[Signed, list[Value]]) -> None:
        """z[q, n] += the sum of each product along n."""

        def added(z: Value) -> Value:
            for a, values in products:
                z = self.along(a, values, 0, n, z)
            return z

        self.k.add_out(self.path.i_out, q, n, added)

    def _product(self, w: Value | None, ggx: Value, ggw: Value | None, x: Value) -> Value:
        return ggx if w is None or ggw is None else self.out.let("p", fma(ggw, x, w * ggx))

    def _scaled(self, hint: str, w: Value | None, values: list[Value]) -> list[Value]:
        return values if w is None else [self.out.let(hint, w * value) for value in values]

    def _forward(self, x: Values, w: list[Value | None]) -> None:
        """The weight goes to x, to the couplings or to the result, whichever are fewest."""
        k, slot, forms = self.k, self.path.i_out, self.coupling.distinct
        for q, (own, factor) in enumerate(zip(x, w)):
            if factor is not None and forms < min(self.d1, self.d3):
                values = {a: self.out.let("wa", factor * a) for a in dict.fromkeys(a for a, _ in self.a.values())}
                signed = {at: (values[a], sign) for at, (a, sign) in self.a.items()}
                for n in range(self.d3):
                    self._add_along(q, n, (signed, own))
            elif factor is None or self.d1 <= self.d3:
                scaled = self._scaled("wx", factor, own)
                for n in range(self.d3):
                    self._add_along(q, n, (self.a, scaled))
            else:
                for n in range(self.d3):
                    k.add_out(slot, q, n, partial(fma, factor, self.along(self.a, own, 0, n)))

    def _backward(self, w: list[Value | None]) -> None:
        k, x, gz = self.k, self.k.x["x"], self.k.gz[self.path.i_out]
        left, right = x, gz
        for q, factor in enumerate(w):
            s = [self.out.let("s", self.along(self.a, gz[q], 1, i)) for i in range(self.d1)]
            for i in range(self.d1):
                self._add(k.gx[q][i], s[i] if factor is None else factor * s[i], factor, s[i])
            self._weight_gradient("gw", q, dot(list(zip(x[q], s))))
        if self.d1 <= self.d3:
            left = [self._scaled("wx", factor, own) for factor, own in zip(w, x)]
        else:
            right = [self._scaled("h", factor, own) for factor, own in zip(w, gz)]
        self._y([(left, right)])

    def _add(self, target: Value, plain: Value, factor: Value | None, s: Value) -> None:
        self.out.add(st.Assign(target, target + plain if factor is None else fma(factor, s, target)))

    def _weight_gradient(self, name: str, q: int, value: Value) -> None:
        if self.path.has_weight:
            element = self.weight(name, self.k.u[q])
            assert element is not None
            self.out.add(st.store(element, value))

    def _double_gradients(self, w: list[Value | None], ggw: list[Value | None], p: Values) -> None:
        k, gz = self.k, self.k.gz[self.path.i_out]
        x, ggx = k.x["x"], k.x["ggx"]
        for q, (factor, second) in enumerate(zip(w, ggw)):
            s = [self.out.let("s", self.along(self.a, gz[q], 1, i)) for i in range(self.d1)]
            t = [self.out.let("t", self.along(self.b, gz[q], 1, i)) for i in range(self.d1)]
            for i in range(self.d1):
                gx = k.gx[q][i]
                more = gx + t[i] if factor is None or second is None else fma(factor, t[i], fma(second, s[i], gx))
                self.out.add(st.Assign(gx, more))
            self._weight_gradient("gw", q, dot([*zip(ggx[q], s), *zip(x[q], t)]))
        self._y([(p, gz)])

    def _y(self, products: list[tuple[Values, Values]]) -> None:
        """gy += sum C sum_channels left right, into the lane's part."""
        if "gy" not in self.k.work.writes:
            return
        k = self.k
        masked = [(self._masked(left), right) for left, right in products]
        grams: dict[tuple[int, int], Value] = {}
        for at in self.coupling.at:
            i, n = at
            pairs = [(left[q][i], right[q][n]) for left, right in masked for q in range(len(left))]
            grams[at] = self.out.let("g", dot(pairs))
        sums: dict[int, Value] = {}
        for i, j, n, c in self.coupling.terms:
            number = const(c, k.dtype)
            sums[j] = fma(number, grams[i, n], sums[j]) if j in sums else number * grams[i, n]
        partial, pitch = k.shared["partial"], self.pitch
        for j, value in sorted(sums.items()):
            place = partial[k.lane * pitch + self.coupling.y[j]]
            self.out.add(st.store(place, place + value))

    def _masked(self, values: Values) -> Values:
        """Lanes that repeat a channel add nothing."""
        k = self.k
        return [
            own if valid is None else [self.out.let("own", select(valid, value, k.zero())) for value in own]
            for own, valid in zip(values, k.valid)
        ]

    # uvw: the weights carry x's channels, one a lane, to the output's

    def _mixed(self) -> None:
        k, work, out = self.k, self.k.work, self.out
        x = k.x["x"][0]
        self.rows = out.let("rows", minimum(self.path.path_shape[0] - k.c, k.wide))
        t = [self.along(self.a, x, 0, n) for n in range(self.d3)]
        names = [("t", "w")]
        if work.double:
            ggx = k.x["ggx"][0]
            second = [self.along(self.b, x, 0, n, self.along(self.a, ggx, 0, n)) for n in range(self.d3)]
            names = [("t2", "w"), ("t", "ggw")]
            out.add(*(st.store(k.shared["t2"][k.lane * self.d3 + n], value) for n, value in enumerate(second)))
        out.add(*(st.store(k.shared["t"][k.lane * self.d3 + n], value) for n, value in enumerate(t)))
        out.barrier()
        if "gz" in work.reads:
            h = self._tiles(names[0][0])
            self._mixed_gradients(x, h)
        if k.out:
            self._mixed_outputs(names)
        out.barrier()

    def element(self, name: str, u: Value, w: Value) -> Value:
        """The weight from channel u of x to w of the output; 1 where the path has none."""
        k, (_, mul2, mul3) = self.k, self.path.path_shape
        if not self.path.has_weight:
            return const(1.0 if name != "ggw" else 0.0, k.dtype)
        row = k.row(name) * k.problem.weight_numel + self.path.weight_offset
        return k.array(name)[row + ((k.c + u) * mul2 + self.v) * mul3 + w]

    def _mixed_outputs(self, names: list[tuple[str, str]]) -> None:
        k, out, mul3 = self.k, self.out, self.path.path_shape[2]
        with out.loop("to", mul3, step=k.wide) as start:
            own = out.let("to_own", start + k.lane)
            w = out.let("to_w", minimum(own, mul3 - 1))
            sums = [out.declare("sum", k.zero()) for _ in range(self.d3)]
            with out.loop("from_u", self.rows) as u:
                for t, name in names:
                    factor = out.let(name, self.element(name, u, w))
                    for n, total in enumerate(sums):
                        out.add(st.Assign(total, fma(factor, k.shared[t][u * self.d3 + n], total)))
            at = k.kept(self.path.i_out, self.d3, own)
            for n, total in enumerate(sums):
                element = k.shared[f"{k.out}_kept"][at + n]
                out.add(st.store(element, element + total))

    def _tiles(self, t: str) -> list[list[Value]]:
        """h (and h') of the lane's channel of x, by tiles of weights in shared memory; gw goes out on the way."""
        k, out, mul3 = self.k, self.out, self.path.path_shape[2]
        pairs = [("w", "tile"), ("ggw", "tile2")][: 2 if k.work.double else 1]
        found = [[out.declare("h", k.zero()) for _ in range(self.d3)] for _ in pairs]
        pitch, kept = k.wide + 1, k.shared["gz_kept"]
        # Rows of a tile beyond x's channels are never written.
        row = out.let("row", k.u[0] - k.c)
        with out.loop("to", mul3, step=k.wide) as start:
            w = out.let("to_w", minimum(start + k.lane, mul3 - 1))
            at = k.kept(self.path.i_out, self.d3, w)
            gz = [out.let("gz", kept[at + n]) for n in range(self.d3)]
            with out.loop("from_u", self.rows) as u:
                for name, tile in pairs:
                    out.add(st.store(k.shared[tile][u * pitch + k.lane], self.element(name, u, w)))
                if self.path.has_weight:
                    value = dot([(k.shared[t][u * self.d3 + n], g) for n, g in enumerate(gz)])
                    out.add(st.store(self.element("gw", u, w), value))
            out.barrier()
            with out.loop("to_w", minimum(mul3 - start, k.wide)) as n3:
                at = k.kept(self.path.i_out, self.d3, start + n3)
                for sums, (_, tile) in zip(found, pairs):
                    factor = out.let("factor", k.shared[tile][row * pitch + n3])
                    for n, total in enumerate(sums):
                        out.add(st.Assign(total, fma(factor, kept[at + n], total)))
            out.barrier()
        return found

    def _mixed_gradients(self, x: list[Value], h: list[list[Value]]) -> None:
        k, out = self.k, self.out
        gx = k.gx[0]
        for i in range(self.d1):
            more = self.along(self.a, h[-1], 1, i, gx[i])
            if k.work.double:
                more = self.along(self.b, h[0], 1, i, more)
            out.add(st.Assign(gx[i], more))
        products = [([x], [h[-1]])]
        if k.work.double:
            products.append(([k.x["ggx"][0]], [h[0]]))
        self._y(products)
