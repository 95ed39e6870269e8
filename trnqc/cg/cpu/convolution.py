"""Programs over a graph: a tensor product for every edge, fused with the gather before and the sum after it.

by receiver:  for every node: z = 0 in scratch; for its edges: x of the sender -> scratch, z += paths;  z -> memory
by sender:    for every node: x -> scratch, gx = 0; for its edges: gz of the receiver -> scratch, gx += paths, gy, gw

No message is ever stored. A group is a share of nodes (graph.py) and writes rows of its own only, in one order, so the
results are the same bits for any number of threads. Compensated, the sum over a node's edges is Kahan's: what an
addition loses is kept and taken off the next term.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial

from trnqc.cg.programs import edges, parts, uvu, uvw
from trnqc.cg.programs.edges import Edge, Row, at
from trnqc.cg.programs.paths import Body, Path, Paths, Slots, index
from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st

G, N, PLACE, E, FAR = (Var(name, "i64") for name in ("share", "node", "place", "edge", "other"))
SHARES, STARTS, EDGES, FARS = ORDER = tuple(Array(name, "i64") for name in ("shares", "starts", "edges", "far"))


def forward(paths: Paths, compensated: bool = False) -> st.Function:
    """conv_forward(shares, starts, edges, far, x, y, w, z), by receiver."""
    x, y, w, z = _rows(paths, x=FAR, y=E, w=E, z=N)
    xs, total = edges.scratch("xs", paths.slots1, paths.dtype), _Total(paths, paths.slots3, "zs", compensated)
    edge = Edge(y, w)
    each: Body = edges.take(paths.slots1, x, xs)
    each += total.adding(lambda path, to: edges.forward_call(paths, path, edge, xs, to))
    mixed = parts.part(paths, "forward", {"x": x, "y": y, "w": w, "z": z})
    body = [*_over(total.opened, each, [*total.given(z), *_zeroed(paths, z)]), *_over_mixed(mixed)]
    return _function(_name("conv_forward", compensated), [x, y, w, z], [xs, *total.scratch], body)


def backward(paths: Paths, compensated: bool = False) -> st.Function:
    """conv_backward(shares, starts, edges, far, x, y, w, gz, gx, gy, gw), by sender."""
    x, y, w, gz, gx, gy, gw = rows = _rows(paths, x=N, y=E, w=E, gz=FAR, gx=N, gy=E, gw=E)
    xs, gzs = edges.scratch("xs", paths.slots1, paths.dtype), _one_slot(paths, "gzs")
    gys = uvu.vectors("gys", paths.problem.dims[1], paths.dtype)
    total, edge = _Total(paths, paths.slots1, "gxs", compensated), Edge(y, w, gw=gw)

    def call(path: Path, to: Array) -> st.Call:
        return edges.backward_call(paths, path, edge, xs, at(gzs), to, gys)

    each = [*edges.cleared(gys, paths.problem.dims[1]), *_inwards(paths, total, gz, gzs, call)]
    each += edges.sums_by_lane(gys, gy, paths.problem.dims[1])
    mixed = parts.part(paths, "backward", dict(zip(uvw.OPERANDS[uvw.backward], rows)))
    opened = [*edges.take(paths.slots1, x, xs), *total.opened]
    body = [*_over(opened, each, [*total.given(gx), *_zeroed(paths, gx)]), *_over_mixed(mixed)]
    return _function(_name("conv_backward", compensated), rows, [xs, gzs, gys, *total.scratch], body)


def double_outputs(paths: Paths, compensated: bool = False) -> st.Function:
    """conv_double_outputs(shares, starts, edges, far, x, y, w, ggx, ggy, ggw, ggz), by receiver."""
    x, y, w, ggx, ggy, ggw, ggz = rows = _rows(paths, x=FAR, y=E, w=E, ggx=FAR, ggy=E, ggw=E, ggz=N)
    xs, ggxs = (edges.scratch(name, paths.slots1, paths.dtype) for name in ("xs", "ggxs"))
    total, edge = _Total(paths, paths.slots3, "ggzs", compensated), Edge(y, w, ggy, ggw)
    each = [*edges.take(paths.slots1, x, xs), *edges.take(paths.slots1, ggx, ggxs)]
    each += total.adding(lambda path, to: edges.double_outputs_call(paths, path, edge, xs, ggxs, to))
    # z is linear in each operand.
    mixed = [
        s
        for a, b, c in ((ggx, y, w), (x, ggy, w), (x, y, ggw))
        for s in parts.part(paths, "forward", {"x": a, "y": b, "w": c, "z": ggz}, weighted=c is ggw)
    ]
    body = [*_over(total.opened, each, [*total.given(ggz), *_zeroed(paths, ggz)]), *_over_mixed(mixed)]
    return _function(_name("conv_double_outputs", compensated), rows, [xs, ggxs, *total.scratch], body)


def double_inputs(paths: Paths, compensated: bool = False) -> st.Function:
    """conv_double_inputs(shares, starts, edges, far, x, y, w, gz, ggx, ggy, ggw, gx, gy, gw, sparez), by sender.

    sparez: a row a share, as long as one of z, for what uvw paths make of ggz.
    """
    kinds = {"x": N, "y": E, "w": E, "gz": FAR, "ggx": N, "ggy": E, "ggw": E, "gx": N, "gy": E, "gw": E, "sparez": G}
    x, y, w, gz, ggx, ggy, ggw, gx, gy, gw, _ = rows = _rows(paths, **kinds)
    xs, ggxs = (edges.scratch(name, paths.slots1, paths.dtype) for name in ("xs", "ggxs"))
    gzs, gys = _one_slot(paths, "gzs"), uvu.vectors("gys", paths.problem.dims[1], paths.dtype)
    total, edge = _Total(paths, paths.slots1, "gxs", compensated), Edge(y, w, ggy, ggw, gw)

    def call(path: Path, to: Array) -> st.Call:
        return edges.double_inputs_call(paths, path, edge, xs, ggxs, at(gzs), to, gys)

    each = [*edges.cleared(gys, paths.problem.dims[1]), *_inwards(paths, total, gz, gzs, call)]
    each += edges.sums_by_lane(gys, gy, paths.problem.dims[1])
    mixed = parts.part(paths, "double_backward", dict(zip(uvw.OPERANDS[uvw.double_backward], rows)))
    opened = [*edges.take(paths.slots1, x, xs), *edges.take(paths.slots1, ggx, ggxs), *total.opened]
    body = [*_over(opened, each, [*total.given(gx), *_zeroed(paths, gx)]), *_over_mixed(mixed)]
    return _function(_name("conv_double_inputs", compensated), rows, [xs, ggxs, gzs, gys, *total.scratch], body)


class _Total:
    """A node's sum over its edges, in scratch; compensated, with an edge's own part and what was lost beside it."""

    def __init__(self, paths: Paths, slots: Slots, name: str, compensated: bool) -> None:
        self.paths, self.slots, self.compensated = paths, slots, compensated
        self.sum, self.part, self.lost = (
            edges.scratch(f"{name}{end}", slots, paths.dtype) for end in ("", "_part", "_lost")
        )

    @property
    def scratch(self) -> list[Array]:
        return [self.sum, self.part, self.lost] if self.compensated else [self.sum]

    @property
    def opened(self) -> Body:
        """Before a node's first edge."""
        lost = edges.cleared(self.lost, self.slots.size) if self.compensated else []
        return [*edges.cleared(self.sum, self.slots.size), *lost]

    @property
    def target(self) -> Array:
        """What the paths of an edge add to."""
        return self.part if self.compensated else self.sum

    def before(self) -> Body:
        return edges.cleared(self.part, self.slots.size) if self.compensated else []

    def after(self) -> Body:
        """An edge's own part joins the sum."""
        if not self.compensated or not self.slots.size:
            return []
        function = _compensated(self.slots.size, self.paths.dtype)
        return [st.Call(function, (self.part, self.sum, self.lost))]

    def adding(self, call: Callable[[Path, st.View], st.Call]) -> Body:
        """All paths of an edge, each to its slot."""
        calls = [call(path, at(self.target, self.slots.place[path.i_out])) for path in self.paths.all]
        return [*self.before(), *calls, *self.after()]

    def given(self, to: Row) -> Body:
        return edges.give(self.slots, self.sum, to)


@cache
def _compensated(size: int, dtype: str) -> st.Function:
    """total += part; lost is what the sum is too large by."""
    part, total, lost = (uvu.vectors(name, size, dtype) for name in ("part", "total", "lost"))
    n, term, new = Var("n", "i64"), Var("term", dtype), Var("new", dtype)
    body: Body = [st.Let(term, part[n] - lost[n]), st.Let(new, total[n] + term)]
    body += [st.store(lost[n], (new - total[n]) - term), st.store(total[n], new)]
    return st.Function(f"compensated_{size}", (part, total, lost), st.block(st.loop(n, size, body)))


def _inwards(paths: Paths, total: _Total, gz: Row, gzs: Array, call: Callable[[Path, Array], st.Call]) -> Body:
    """All paths of an edge, slot after slot of gz."""
    body = total.before()
    for slot, rows in paths.slots3.rows.items():
        body.append(st.Call(uvu.taken(rows), (gz[paths.slots3.start[slot]], at(gzs))))
        body += [call(path, total.target) for path in paths.to(slot)]
    return [*body, *total.after()]


def _over(opened: Body, each: Body, closed: Body) -> Body:
    """For every node of a share: what is done before, for and after its edges."""
    ends = [st.Let(E, EDGES[PLACE]), st.Let(FAR, FARS[PLACE])]
    walk = st.loop(PLACE, STARTS[N + 1], ends, each, begin=STARTS[N])
    return [st.loop(N, SHARES[G + 1], opened, walk, closed, begin=SHARES[G])]


def _over_mixed(each: Body) -> Body:
    """uvw paths add to what is in memory already."""
    return _over([], each, []) if each else []


def _zeroed(paths: Paths, row: Row) -> Body:
    """Zeros in the slots of a node's row that no uvu path reaches."""
    problem = paths.problem
    if row.array.name.endswith("x"):
        return edges.zeroed(row, paths.slots1, problem.slices1)
    return edges.zeroed(row, paths.slots3, problem.slices3)


def _one_slot(paths: Paths, name: str) -> Array:
    return uvu.vectors(name, max((rows.size for rows in paths.slots3.rows.values()), default=0), paths.dtype)


def _rows(paths: Paths, **numbers: Value) -> tuple[Row, ...]:
    """Rows of the operands by name, whose last letter tells their length; shared weights are one row for all edges,
    and their gradient is one row a share."""
    problem = paths.problem
    lengths = dict(zip("xyzw", (*problem.dims, problem.weight_numel)))
    found = []
    for name, number in numbers.items():
        if name[-1] == "w" and problem.shared_weights:
            number = G if name == "gw" else index(0)
        found.append(edges.row(name, paths.dtype, number, lengths[name[-1]]))
    return tuple(found)


def _function(name: str, rows: list[Row] | tuple[Row, ...], scratch: list[Array], body: Body) -> st.Function:
    params = (*ORDER, *(row.array for row in rows))
    return st.Function(name, params, st.block([*map(st.DeclareArray, scratch), *body]), group=G)


def _name(name: str, compensated: bool) -> str:
    return name + "_kahan" * compensated


PROGRAMS: Mapping[str, Callable[[Paths], st.Function]] = {
    _name(name, compensated): partial(program, compensated=compensated)
    for name, program in (
        ("conv_forward", forward),
        ("conv_backward", backward),
        ("conv_double_outputs", double_outputs),
        ("conv_double_inputs", double_inputs),
    )
    for compensated in (False, True)
}
