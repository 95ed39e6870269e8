"""The vertical recurrence: exact node counts, few values live at once, and the same numbers by any rule and order."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gen.programs import run_both
from trnqc.eri.kernels.angular import cartesians
from trnqc.eri.kernels.recurrence import RULES, fewest_flops, recurrence
from trnqc.eri.kernels.vertical import straight
from trnqc.gen import Array, Var
from trnqc.gen import statements as st
from trnqc.gen.cost import cost_of_values
from trnqc.gen.interpreter import evaluate
from trnqc.gen.liveness import allocate, peak_live
from trnqc.gen.schedule import METHODS, best_of, first
from trnqc.gen.values import walk

# Of RULES and those of fewest flops: what holds for any functions.
RULES_FOR_ALL = (*RULES, "ket cheapest", "bra cheapest")
NODES = {
    "0000": {"interleaved": 1, "ket first": 1, "bra first": 1},
    "1000": {"interleaved": 5, "ket first": 5, "bra first": 5},
    "1010": {"interleaved": 22, "ket first": 18, "bra first": 18},
    "1111": {"interleaved": 176, "ket first": 146, "bra first": 146},
    "2111": {"interleaved": 373, "ket first": 276, "bra first": 336},
    "2121": {"interleaved": 806, "ket first": 630, "bra first": 630},
    "2211": {"interleaved": 718, "ket first": 521, "bra first": 671},
    "2222": {"interleaved": 2885, "ket first": 2330, "bra first": 2330},
    "3311": {"interleaved": 1972, "ket first": 1284, "bra first": 2022},
}
TARGETS = {"0000": 1, "1000": 3, "1010": 9, "1111": 81, "2111": 144, "2121": 256, "2211": 279, "2222": 961}


def shells(digits: str) -> tuple[int, int, int, int]:
    la, lb, lc, ld = map(int, digits)
    return la, lb, lc, ld


@pytest.mark.parametrize("digits, rule, nodes", [(n, r, c) for n, row in NODES.items() for r, c in row.items()])
def test_node_counts(digits, rule, nodes):
    assert len(recurrence(*shells(digits), rule).graph) == nodes


@pytest.mark.parametrize("digits", TARGETS)
@pytest.mark.parametrize("rule", ["interleaved", "ket cheapest"])
def test_targets(digits, rule):
    """As many as pairs of Cartesian functions e of la .. la+lb and f of lc .. lc+ld."""
    assert len(recurrence(*shells(digits), rule).graph.targets) == TARGETS[digits]


@pytest.mark.parametrize("digits", ["1111", "2121", "2211", "1122", "3311"])
def test_fewest_flops(digits):
    """The rule for CPUs: the side of lower angular momentum first, and of its axes the one that leaves fewest terms."""

    def flops(rule: str) -> int:
        return cost_of_values(*recurrence(*shells(digits), rule).targets).flops.at()

    assert flops(fewest_flops(*shells(digits))) == min(map(flops, RULES_FOR_ALL))


def fewest_live(digits: str, rules: tuple[str, ...], draws: int) -> int:
    graphs = [recurrence(*shells(digits), rule).graph for rule in rules]
    return min(peak_live(g, best_of(g, "target", draws)) for g in graphs)


@pytest.mark.parametrize("digits, most", [("1000", 3), ("1010", 6), ("1111", 22), ("2111", 28), ("2121", 52)])
def test_few_values_live(digits, most):
    assert fewest_live(digits, ("interleaved",), draws=2) <= most


def test_few_values_live_when_the_bra_is_larger():
    assert fewest_live("2211", ("interleaved", "mirrored"), draws=4) <= 42


@pytest.mark.slow
def test_few_values_live_in_a_large_class():
    assert fewest_live("2222", ("interleaved",), draws=2) <= 100


def test_completing_targets_beats_the_usual_orders():
    graph = recurrence(*shells("2121"), "bra first").graph
    peaks = {method: peak_live(graph, METHODS[method](graph, first)) for method in METHODS}
    assert peaks["target"] < min(peaks["greedy"], peaks["reach"])
    assert peaks["target"] * 3 < min(peaks["fifo"], peaks["level"])
    assert peaks["fifo"] >= 5 * fewest_live("2121", ("interleaved",), draws=2)


def test_slots_are_as_few_as_values_live():
    graph = recurrence(*shells("1111"), "interleaved").graph
    order = best_of(graph, draws=2)
    assert allocate(graph, order).count == max(peak_live(graph, order), len(graph.inputs))


def leaves(whole) -> list[str]:
    return sorted({v.attr for v in walk(whole.targets) if v.op == "var"})


@pytest.mark.parametrize("rule", RULES_FOR_ALL)
@pytest.mark.parametrize("digits", ["1010", "2011", "1121"])
def test_every_rule_gives_the_same_integrals(digits, rule):
    """The paths differ, and their ends agree only where the leaves belong together, as those of Gaussians do."""
    whole, other = recurrence(*shells(digits), rule), recurrence(*shells(digits), "interleaved")
    known_values = consistent_leaves(sum(shells(digits)))
    ours, theirs = ([float(evaluate(t, known_values)) for t in w.targets] for w in (whole, other))
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12 * np.abs(theirs).max())


def consistent_leaves(order: int) -> dict[str, float]:
    """Coefficients of one primitive quartet; F_m = (2 rho)^m F_m(T) by quadrature."""
    rng = np.random.default_rng(order)
    a, b, c, d = rng.normal(size=(4, 3))
    alpha, beta, gamma, delta = rng.uniform(0.3, 2.0, 4)
    zeta, eta = alpha + beta, gamma + delta
    p, q = (alpha * a + beta * b) / zeta, (gamma * c + delta * d) / eta
    rho = zeta * eta / (zeta + eta)
    h, k = 0.5 / zeta, 0.5 / eta
    known_values = {"half_zeta": h, "half_eta": k, "half_both": h * k}
    for n, x in enumerate("xyz"):
        known_values |= {
            f"PA_{x}": (p - a)[n],
            f"WP_{x}": -h * (p - q)[n],
            f"QC_{x}": (q - c)[n],
            f"WQ_{x}": k * (p - q)[n],
        }
    nodes, weights = np.polynomial.legendre.leggauss(60)
    t = 0.5 * (nodes + 1)
    for m in range(order + 1):
        value = 0.5 * (weights * t ** (2 * m) * np.exp(-rho * ((p - q) ** 2).sum() * t**2)).sum()
        known_values[f"F_{m}"] = (2 * rho) ** m * value
    return known_values


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("method", ["", "target"])
def test_straight_code_computes_the_graph(add, lanes, method):
    digits = shells("1110")
    function = straight(*digits, add=add, method=method)
    known_values = consistent_leaves(sum(digits))
    *scalars, boys, h, _ = function.params
    x, work = Array("x", "f64", (len(known_values),), lanes=True), Array("work", "f64", (1,), lanes=True)
    names = sorted(known_values)
    body = [st.Let(Var(name), x[names.index(name)]) for name in names if not name.startswith("F_")]
    body += [st.DeclareArray(boys), *(st.store(boys[m], x[names.index(f"F_{m}")]) for m in range(boys.size))]
    body += [st.Call(function, (*scalars, boys, h, work))]
    inputs = {
        "x": np.repeat(np.array([known_values[name] for name in names])[:, None], lanes, axis=1),
        "h": np.full((h.size, lanes), 2.0),
        "work": np.zeros((1, lanes)),
    }
    ours, theirs = run_both(st.Function("one", (x, h, work), st.block(body)), inputs, lanes, flags=())
    np.testing.assert_allclose(theirs["h"], ours["h"], rtol=1e-12)
    whole = recurrence(*digits, fewest_flops(*digits))
    want = 2.0 * add + np.array([float(evaluate(t, known_values)) for t in whole.targets])
    np.testing.assert_allclose(ours["h"][:, 0], want, rtol=1e-12)
    assert len(want) == (len(cartesians(1)) + len(cartesians(2))) * 3
