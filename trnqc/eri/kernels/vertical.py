"""The vertical recurrence of one primitive quartet as one function of straight-line code.

There are two forms of this function, `straight` here and `columns.vertical`. A kernel may call either, because both
have the parameters of `parameters`, in this order:

  PA_x, WP_x, PA_y, ... WQ_z, half_zeta, half_eta, half_both   f64, the LEAVES of recurrence.py
  boys     local f64 [la+lb+lc+ld+1]: G[0|0]^(m), with all prefactors and contraction coefficients
  h        f64 [n_e, n_f] of lanes: the targets G[e|f]^(0), in the order of `components`; they are added or stored
  scratch  global f64 of lanes, of the size that the form needs; its contents do not matter before or after
"""

from __future__ import annotations

from trnqc.eri.kernels.recurrence import LEAVES, components, fewest_flops, recurrence
from trnqc.gen import Array, Value
from trnqc.gen import statements as st
from trnqc.gen.schedule import best_of
from trnqc.gen.sequence import straight_line

# Graphs below this number of nodes are ordered for few live values even where no order is asked for: it takes no time.
SMALL = 400


def parameters(la: int, lb: int, lc: int, ld: int, space: str = "global") -> tuple[Value | Array, ...]:
    """Return the parameters of a vertical recurrence function: LEAVES, boys, h in the memory `space`, scratch."""
    boys = Array("boys", "f64", (la + lb + lc + ld + 1,), "local")
    h = Array("h", "f64", (len(components(la, lb)), len(components(lc, ld))), space, lanes=space != "local")
    return (*LEAVES, boys, h, Array("scratch", "f64", (None,), lanes=True))


def straight(
    la: int,
    lb: int,
    lc: int,
    ld: int,
    add: bool,
    *,
    rule: str = "",
    method: str = "",
    draws: int = 1,
    space: str = "global",
) -> st.Function:
    """Build the vertical recurrence of a class without loops.

    Parameters
    ----------
    la, lb, lc, ld
        The angular momenta of the class.
    add
        Whether the targets are added to h or stored.
    rule
        A rule of `recurrence`; by default the one with the fewest flops, which suits CPUs.
    method, draws
        The order of the nodes, as in `trnqc.gen.schedule.best_of`. By default nodes are ordered for few live values.
        Only a large graph by the default rule keeps the order of its targets: CPUs are as fast with it, and it takes
        no seconds to find.
    space
        The memory of h: "global", "shared" or "local".
    """
    system = recurrence(la, lb, lc, ld, rule or fewest_flops(la, lb, lc, ld))
    own = parameters(la, lb, lc, ld, space)
    boys, h = own[-3], own[-2]
    assert isinstance(boys, Array) and isinstance(h, Array)
    graph, n_f = system.graph, len(components(lc, ld))
    place = {target: h[divmod(n, n_f)] for n, target in enumerate(system.targets)}
    put = st.accumulate if add else st.store
    method = method or ("listed" if not rule and len(graph) >= SMALL else "target")
    steps, _ = straight_line(graph, best_of(graph, method, draws), finish=lambda node, held: put(place[node], held))
    reads = [st.Let(f, boys[m]) for m, f in system.boys.items()]
    # A target that is a Boys value itself, in (00|00).
    copies = [put(place[f], f) for f in system.boys.values() if f in place]
    name = f"vertical_{la}{lb}{lc}{ld}_{'add' if add else 'store'}"
    return st.Function(name, own, st.block(reads, copies, steps), title=f"[e0|f0] of a primitive ({la}{lb}|{lc}{ld})")
