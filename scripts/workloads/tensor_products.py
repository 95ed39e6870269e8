"""Tensor products of published models by label, and small ones with unusual shapes.

Channelwise (uvu): every allowed triple of degrees that the filter lets through has an output slot of its own, outputs
sorted. Fully connected (uvw): every instruction that the selection rules allow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trnqc.cg.problem.problem import TPProblem

Kind = tuple[int, int]  # degree and parity

# Channels and highest degree.
NEQUIP = {
    "nequip-lips": (32, 2),
    "nequip-revmd17-aspirin": (64, 1),
    "nequip-revmd17-toluene": (64, 2),
    "nequip-revmd17-benzene": (64, 3),
    "nequip-water": (32, 1),
}
DIFFDOCK = "10x1o+10x1e+48x0e+48x0o"
TETRIS = "64x0e+24x1e+24x1o+16x2e+16x2o"
SPHERES = {1: "1x0e+1x1o", 2: "1x0e+1x1o+1x2e", 3: "1x0e+1x1o+1x2e+1x3o"}

CHANNELWISE = {
    "mace-large": ("128x0e+128x1o+128x2e", SPHERES[3], "128x0e+128x1o+128x2e+128x3o"),
    "mace-medium": ("128x0e+128x1o", SPHERES[3], "128x0e+128x1o+128x2e"),
}
for _label, (_mul, _top) in NEQUIP.items():
    _features = "+".join(f"{_mul}x{l}{p}" for l in range(_top + 1) for p in ("oe"))
    CHANNELWISE[_label] = (_features, SPHERES[_top], _features)

FULL = {
    "DiffDock-L=1": (DIFFDOCK, SPHERES[1], DIFFDOCK, False),
    "DiffDock-L=2": (DIFFDOCK, SPHERES[2], DIFFDOCK, False),
    "tetris-poly-1": (SPHERES[3], SPHERES[3], TETRIS, True),
    "tetris-poly-2": (TETRIS, SPHERES[2], "0o+6x0e", True),
    "e3tools_conv": ("64x0e+16x1o", SPHERES[1], "80x0e+16x1o", False),
}

# One instruction each, all even: degrees of the inputs and the output.
ROOFLINE = {
    f"roofline-{n}": degrees
    for n, degrees in enumerate(
        ((1, 1, 1), (2, 1, 2), (3, 3, 3), (5, 5, 3), (5, 3, 5), (6, 3, 6), (7, 4, 7), (7, 7, 7)), start=1
    )
}

LABELS = (*CHANNELWISE, *FULL, *ROOFLINE)


def configuration(label: str, **options: Any) -> TPProblem:
    """The problem of a published model; options are TPProblem's, such as dtype and layout."""
    if label in CHANNELWISE:
        return channelwise(*CHANNELWISE[label], label=label, **options)
    if label in FULL:
        in1, in2, out, shared = FULL[label]
        return fully_connected(in1, in2, out, label=label, **{"shared_weights": shared, **options})
    l1, l2, l3 = ROOFLINE[label]
    rule = [(0, 0, 0, "uvu", True)]
    return TPProblem(f"128x{l1}e", f"1x{l2}e", f"128x{l3}e", rule, label=label, **own(options))


def channelwise(in1: str, in2: str, out: str, **options: Any) -> TPProblem:
    """uvu with an output slot for every allowed triple whose irrep is among those of `out`."""
    wanted = {kind for _, kind in slots(out)}
    outputs = []
    for i, (mul, first) in enumerate(slots(in1)):
        for j, (_, second) in enumerate(slots(in2)):
            outputs += [(ir, mul, i, j) for ir in products(first, second) if ir in wanted]
    outputs.sort(key=lambda entry: entry[0])
    rules = [(i, j, k, "uvu", True) for k, (_, _, i, j) in enumerate(outputs)]
    return TPProblem(in1, in2, "+".join(f"{mul}x{name(ir)}" for ir, mul, _, _ in outputs), rules, **own(options))


def fully_connected(in1: str, in2: str, out: str, **options: Any) -> TPProblem:
    """uvw with every instruction that the selection rules allow."""
    rules = [
        (i, j, k, "uvw", True)
        for i, (_, first) in enumerate(slots(in1))
        for j, (_, second) in enumerate(slots(in2))
        for k, (_, third) in enumerate(slots(out))
        if third in products(first, second)
    ]
    return TPProblem(in1, in2, out, rules, **own(options))


def own(options: dict[str, Any]) -> dict[str, Any]:
    """The options with weights of its own for every row, unless they say otherwise."""
    return {"shared_weights": False, **options}


# Few channels and few paths each, so that a dense reference is quick; what each probes stands beside it.
AWKWARD: dict[str, Callable[..., TPProblem]] = {
    # Fewer channels than lanes, and one more than two vectors of doubles.
    "uvu-1": lambda **o: channelwise("1x0e+1x1o", SPHERES[2], "1x0e+1x1o+1x2e", **o),
    "uvu-5": lambda **o: channelwise("5x0e+5x1o+5x2e", SPHERES[2], "5x0e+5x1o+5x2e", **o),
    "uvu-17": lambda **o: channelwise("17x1o+17x0e", "1x1o", "17x0e+17x1o+17x1e", **o),
    "uvu-33": lambda **o: channelwise("33x1o", "1x0e+1x2e", "33x1o", **o),
    # Slots of unlike multiplicities, and several channels of y.
    "uvu-y3": lambda **o: channelwise("4x0e+19x1o", "3x0e+2x1o", "4x0e+4x1o+4x1e", **o),
    "uvu-high": lambda **o: channelwise("3x4e", "1x4o", "3x1o+3x4o+3x7o", **o),
    "uvw-1": lambda **o: fully_connected("1x0e+1x1o", "1x1o", "1x0e+1x1o+1x1e", **o),
    "uvw-odd": lambda **o: fully_connected("5x0e+3x1o", "1x0e+1x1o+1x2e", "7x0e+17x1o+1x2e", **o),
    "uvw-y3": lambda **o: fully_connected("4x0e+2x1o", "3x0e+2x1o", "33x0e+9x1o+5x1e", **o),
    "uvw-shared": lambda **o: fully_connected("6x1o+9x0e", "2x0e+1x1o", "18x1o+5x0e", **{"shared_weights": True, **o}),
    "mixed": lambda **o: TPProblem(
        "6x0e+5x1o+2x1e",
        "2x0e+1x1o",
        "6x0e+9x0e+5x1o+6x1o",
        [
            (0, 0, 0, "uvu", True),
            (1, 1, 0, "uvw", True),
            (1, 1, 1, "uvw", True, 0.25),
            (1, 0, 2, "uvu", True),
            (1, 0, 2, "uvw", True),
            (0, 1, 3, "uvu", False),
        ],
        **own(o),
    ),
    # No weights at all; one slot that is read twice and one that is never read or written.
    "unweighted": lambda **o: TPProblem(
        "9x1o+3x0e", "2x1o", "9x0e+9x1e+3x2e", [(0, 0, 0, "uvu", False), (0, 0, 1, "uvu", False, 2.0)], **own(o)
    ),
    # Slots of no channels, an output that nothing reaches.
    "empty-slots": lambda **o: TPProblem(
        "0x0e+4x1o", "1x1o+0x2e", "4x0e+0x1o+2x2e", [(1, 0, 0, "uvu", True), (0, 0, 1, "uvu", True)], **own(o)
    ),
    # All of e3nn's modes in one problem, with weights and without, more channels than a vector has lanes and fewer.
    "all-modes": lambda **o: TPProblem(
        "6x0e+6x1o+2x1e+19x1o+1x1o",
        "6x0e+6x1o+3x1e+19x1o",
        "6x0e+6x1o+2x2e+36x1e+15x2e+4x1e+57x0e+171x1e+2x0e+1x0e+3x0o",
        [
            (1, 1, 0, "uuu", True),
            (0, 1, 1, "uuu", False),
            (1, 0, 1, "uvu", True),
            (1, 1, 2, "uvw", True),
            (0, 1, 1, "uvv", True, 0.5),
            (1, 0, 1, "uvv", False),
            (1, 1, 3, "uvuv", True),
            (1, 1, 3, "uvuv", False, 2.0),
            (1, 1, 4, "uvu<v", True),
            (1, 1, 5, "u<vw", True),
            (1, 1, 5, "uuw", True),
            (3, 3, 7, "uvu<v", False),
            (3, 3, 8, "uuw", True),
            (3, 3, 8, "u<vw", True),
            (3, 3, 9, "uuw", False),
            (2, 3, 10, "uvw", True),
        ],
        **own(o),
    ),
    "nothing": lambda **o: TPProblem("3x0e", "1x1o", "2x2e", [], **own(o)),
}


def awkward(label: str, **options: Any) -> TPProblem:
    return AWKWARD[label](label=label, **options)


def slots(irreps: str) -> list[tuple[int, Kind]]:
    """(multiplicity, (degree, parity)) of every slot of such a string."""
    slots = []
    for word in irreps.replace(" ", "").split("+"):
        mul, _, irrep = word.rpartition("x")
        slots.append((int(mul or 1), (int(irrep[:-1]), {"e": 1, "o": -1}[irrep[-1]])))
    return slots


def products(a: Kind, b: Kind) -> list[Kind]:
    """The irreps in the product of two."""
    return [(l, a[1] * b[1]) for l in range(abs(a[0] - b[0]), a[0] + b[0] + 1)]


def name(irrep: Kind) -> str:
    return f"{irrep[0]}{'e' if irrep[1] == 1 else 'o'}"
