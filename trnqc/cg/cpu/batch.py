"""Programs over a batch: one group an edge, every operand a row of its own (shared weights: one row for all).

The gradient of shared weights is added to row `share` of gw, so that ranges of edges may run at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from trnqc.cg.cpu import stack
from trnqc.cg.programs import edges, parts, uvu, uvw
from trnqc.cg.programs.edges import Edge, Row
from trnqc.cg.programs.paths import Body, Path, Paths, index
from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st

E, SHARE, FIRST = Var("e", "i64"), Var("share", "i64"), index(0)


def together_where_possible(program: Callable[[Paths], st.Function]) -> Callable[[Paths], st.Function]:
    """The program, or that of several edges at a time where it can be had."""

    @wraps(program)
    def chosen(paths: Paths) -> st.Function:
        several = uvw.together(paths, program.__name__)
        if several is None or stack.needs(several, paths.lanes) > stack.available():
            return program(paths)
        return several

    return chosen


@together_where_possible
def forward(paths: Paths) -> st.Function:
    """forward(x, y, w, z)."""
    x, y, z = _rows(paths, x=0, y=1, z=2)
    edge, xs = Edge(y, _weights(paths, "w")), edges.scratch("xs", paths.slots1, paths.dtype)
    body: Body = [st.DeclareArray(xs), *edges.take(paths.slots1, x, xs)]
    body += outputs(paths, z, lambda path, target: edges.forward_call(paths, path, edge, xs, target))
    body += parts.part(paths, "forward", {"x": x, "y": y, "w": edge.w, "z": z})
    return st.Function("forward", (x.array, y.array, edge.w.array, z.array), st.block(body), group=E)


@together_where_possible
def backward(paths: Paths) -> st.Function:
    """backward(x, y, w, gz, gx, gy, gw, share)."""
    x, y, gz, gx, gy = _rows(paths, x=0, y=1, gz=2, gx=0, gy=1)
    gw = _weights(paths, "gw", SHARE)
    edge = Edge(y, _weights(paths, "w"), gw=gw)
    xs, gxs, gzs, gys = _scratches(paths)
    body: Body = [*_declared(xs, gxs, gzs, gys), *edges.take(paths.slots1, x, xs), *_cleared(paths, gxs, gys)]
    for slot in paths.slots3.rows:
        body += inward(paths, slot, gz, gzs)
        body += [edges.backward_call(paths, path, edge, xs, edges.at(gzs), gxs, gys) for path in paths.to(slot)]
    body += gradients(paths, gxs, gx, gys, gy)
    rows = {"x": x, "y": y, "w": edge.w, "gz": gz, "gx": gx, "gy": gy, "gw": gw}
    body += parts.part(paths, "backward", rows)
    arrays = (row.array for row in rows.values())
    return st.Function("backward", (*arrays, SHARE), st.block(body), group=E)


@together_where_possible
def double_backward(paths: Paths) -> st.Function:
    """double_backward(x, y, w, gz, ggx, ggy, ggw, gx, gy, gw, ggz, share)."""
    x, y, gz, ggx, ggy, gx, gy, ggz = _rows(paths, x=0, y=1, gz=2, ggx=0, ggy=1, gx=0, gy=1, ggz=2)
    w, ggw, gw = _weights(paths, "w"), _weights(paths, "ggw"), _weights(paths, "gw", SHARE)
    edge = Edge(y, w, ggy, ggw, gw)
    xs, gxs, gzs, gys = _scratches(paths)
    ggxs = edges.scratch("ggxs", paths.slots1, paths.dtype)
    body: Body = [*_declared(xs, ggxs, gxs, gzs, gys), *edges.take(paths.slots1, x, xs)]
    body += [*edges.take(paths.slots1, ggx, ggxs), *_cleared(paths, gxs, gys)]

    def call(path: Path, target: Array | st.View) -> st.Call:
        return edges.double_call(paths, path, edge, xs, ggxs, edges.at(gzs), target, gxs, gys)

    body += outputs(paths, ggz, call, lambda slot: inward(paths, slot, gz, gzs))
    body += gradients(paths, gxs, gx, gys, gy)
    rows = dict(zip(uvw.OPERANDS[uvw.double_backward], (x, y, w, gz, ggx, ggy, ggw, gx, gy, gw, ggz)))
    body += parts.part(paths, "double_backward", rows)
    arrays = (row.array for row in rows.values())
    return st.Function("double_backward", (*arrays, SHARE), st.block(body), group=E)


def outputs(
    paths: Paths, z: Row, call: Callable[[Path, st.View], st.Call], before: Callable[[int], Body] = lambda slot: []
) -> Body:
    """Every slot of z: written by its path where it has one, else by all its paths through scratch; zero without."""
    body = edges.zeroed(z, paths.slots3, paths.problem.slices3)
    zs = uvu.vectors("zs", max((rows.size for rows in paths.slots3.rows.values()), default=0), paths.dtype)
    if any(len(paths.to(slot)) > 1 for slot in paths.slots3.rows):
        body.append(st.DeclareArray(zs))
    for slot, rows in paths.slots3.rows.items():
        to, start = paths.to(slot), paths.slots3.start[slot]
        body += before(slot)
        if len(to) == 1:
            body.append(call(to[0], z[start]))
            continue
        body += [*edges.cleared(zs, rows.size), *[call(path, edges.at(zs)) for path in to]]
        body.append(st.Call(uvu.given(rows), (z[start], edges.at(zs))))
    return body


def inward(paths: Paths, slot: int, gz: Row, gzs: Array) -> Body:
    """One slot of gz to scratch."""
    return [st.Call(uvu.taken(paths.slots3.rows[slot]), (gz[paths.slots3.start[slot]], edges.at(gzs)))]


def gradients(paths: Paths, gxs: Array, gx: Row, gys: Array, gy: Row) -> Body:
    """gx and gy from scratch to memory."""
    body = [*edges.give(paths.slots1, gxs, gx), *edges.zeroed(gx, paths.slots1, paths.problem.slices1)]
    return body + edges.sums_by_lane(gys, gy, paths.problem.dims[1])


def _rows(paths: Paths, **kinds: int) -> tuple[Row, ...]:
    """Rows of arrays by name, each as long as x (0), y (1) or z (2)."""
    return tuple(edges.row(name, paths.dtype, E, paths.problem.dims[kind]) for name, kind in kinds.items())


def _weights(paths: Paths, name: str, shared_row: Value = FIRST) -> Row:
    number = shared_row if paths.problem.shared_weights else E
    return edges.row(name, paths.dtype, number, paths.problem.weight_numel)


def _scratches(paths: Paths) -> tuple[Array, Array, Array, Array]:
    """xs, gxs, gzs (one slot) and gys."""
    xs, gxs = (edges.scratch(name, paths.slots1, paths.dtype) for name in ("xs", "gxs"))
    widest = max((rows.size for rows in paths.slots3.rows.values()), default=0)
    return xs, gxs, uvu.vectors("gzs", widest, paths.dtype), uvu.vectors("gys", paths.problem.dims[1], paths.dtype)


def _declared(*arrays: Array) -> Body:
    return [st.DeclareArray(array) for array in arrays]


def _cleared(paths: Paths, gxs: Array, gys: Array) -> Body:
    return [*edges.cleared(gxs, paths.slots1.size), *edges.cleared(gys, paths.problem.dims[1])]
