"""Graphs of real size: the vertical recurrence's node counts are exact, and few of its values need to live at once."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gen.programs import run_both
from tests.gen.recurrences import kernel, vertical
from trnqc.gen.interpreter import evaluate
from trnqc.gen.liveness import peak_live
from trnqc.gen.schedule import METHODS, best_of, first
from trnqc.gen.slots import allocate

NODES = {
    "0000": {"interleaved": 1, "ket first": 1, "bra first": 1},
    "1000": {"interleaved": 5, "ket first": 5, "bra first": 5},
    "1010": {"interleaved": 22, "ket first": 18, "bra first": 18},
    "1111": {"interleaved": 176, "ket first": 146, "bra first": 146},
    "2111": {"interleaved": 373, "ket first": 276, "bra first": 336},
    "2121": {"interleaved": 806, "ket first": 630, "bra first": 630},
    "2211": {"interleaved": 718, "ket first": 521, "bra first": 671},
    "2222": {"interleaved": 2885, "ket first": 2330, "bra first": 2330},
}
TARGETS = {"0000": 1, "1000": 3, "1010": 9, "1111": 81, "2111": 144, "2121": 256, "2211": 279, "2222": 961}


def system(name: str, rule: str):
    return vertical(*map(int, name), rule=rule)


@pytest.mark.parametrize("name, rule, nodes", [(n, r, c) for n, row in NODES.items() for r, c in row.items()])
def test_node_counts(name, rule, nodes):
    graph = system(name, rule).graph
    assert (len(graph), len(graph.targets)) == (nodes, TARGETS[name])


def fewest(name: str, rules: tuple[str, ...], draws: int) -> int:
    graphs = [system(name, rule).graph for rule in rules]
    return min(peak_live(g, best_of(g, "target", draws)) for g in graphs)


@pytest.mark.parametrize("name, most", [("1000", 3), ("1010", 6), ("1111", 22), ("2111", 28), ("2121", 52)])
def test_few_values_live(name, most):
    assert fewest(name, ("interleaved",), draws=2) <= most


def test_few_values_live_when_the_bra_is_larger():
    assert fewest("2211", ("interleaved", "mirrored"), draws=4) <= 42


@pytest.mark.slow
def test_few_values_live_in_the_largest_class():
    assert fewest("2222", ("interleaved",), draws=2) <= 100


def test_completing_targets_beats_the_usual_orders():
    graph = system("2121", "bra first").graph
    peaks = {method: peak_live(graph, METHODS[method](graph, first)) for method in METHODS}
    assert peaks["target"] < min(peaks["greedy"], peaks["reach"])
    assert peaks["target"] * 3 < min(peaks["fifo"], peaks["level"])
    assert peaks["fifo"] >= 5 * fewest("2121", ("interleaved",), draws=2)


@pytest.mark.parametrize("rule", ["interleaved", "ket first"])
@pytest.mark.parametrize("lanes", [1, 8])
def test_the_kernel_computes_the_recurrence(rule, lanes):
    whole = system("1111", rule)
    order = best_of(whole.graph, draws=2)
    function = kernel(whole, order)
    rng = np.random.default_rng(lanes)
    leaves = function.params[1].shape[2]
    given = {
        "K": 3,
        "p": rng.uniform(0.1, 1, (2, 3, leaves, lanes)),
        "F": rng.uniform(0.1, 1, (2, 3, 5, lanes)),
        "h": np.ones((2, 81, lanes)),
    }
    ours, theirs = run_both(function, given, lanes, groups=(0, 2), flags=())
    np.testing.assert_allclose(theirs["h"], ours["h"], rtol=1e-12)
    names = sorted(name for name in _names(whole) if not name.startswith("F_"))
    want = np.ones(81)
    for primitive in range(3):
        at = {n: given["p"][1, primitive, k, 0] for k, n in enumerate(names)}
        at |= {f"F_{m}": given["F"][1, primitive, m, 0] for m in range(5)}
        want += [evaluate(t, at) for t in whole.targets]
    np.testing.assert_allclose(ours["h"][1, :, 0], want, rtol=1e-12)


def test_slots_are_as_few_as_values_live():
    graph = system("1111", "interleaved").graph
    order = best_of(graph, draws=2)
    assert allocate(graph, order).count == max(peak_live(graph, order), len(graph.inputs))


def _names(whole) -> set[str]:
    from trnqc.gen.values import walk

    return {v.attr for v in walk(whole.targets) if v.op == "var"}
