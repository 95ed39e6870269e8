"""Reference figures of the ablation: those of FusionRCG (arXiv 2605.10312) and of a prototype.

The prototype was another program over the same recurrences, on AVX-512 CPUs and nvcc 13.0; if the paper has several
figures for one quantity, all are listed. Readings of the score of its scheduler (Eq. 7) are in eq7.py. "reach" is a
score of our own from the same idea, fewest dependants first; the prototype's figures are those of Eq. 7.
"""

from __future__ import annotations

CLAIMS = {
    "nodes (1111)": "> 700",
    "nodes (2222)": "3545",
    "slots (2222) after packing": "1865",
    "peak live, sum l <= 6": "<= about 50",
    "axis rule": "up to 4.2x fewer live values (3.2x in the conclusion), same node count and arithmetic",
    "scheduler": "2.3x (44.7 %) throughput",
    "stepwise Cartesian to spherical": "intermediates up to 7.7x fewer",
    "spills": "none up to sum l = 6; 484 B at (1111)",
    "SCF against gpu4pyscf": "1.3x to 3.09x",
}

# Nodes and flops of the vertical recurrence by rule, at most what other derivations found; exact and deterministic.
NODES = {
    "0000": (1, 1, 1),
    "1000": (5, 5, 5),
    "1010": (22, 18, 18),
    "1111": (176, 146, 146),
    "2111": (373, 276, 336),
    "2121": (806, 630, 630),
    "2211": (718, 521, 671),
    "2221": (1531, 1175, 1260),
    "2222": (2885, 2330, 2330),
    "3311": (1972, 1284, 2022),
    "3322": (7526, 5581, 6998),
    "3333": (20448, 16682, 16682),
}
NODE_RULES = ("interleaved", "ket first", "bra first")

# Peak live values: level, FIFO, the paper's Eq. 7 as printed, greedy, target; interleaved / ket first / bra first.
PROTOTYPE_PEAKS = {
    "1010": ("12/8/8", "12/8/8", "9/7/7", "9/7/7", "6/6/-"),
    "1111": ("94/76/58", "83/59/59", "68/44/44", "34/28/30", "21/22/26"),
    "2111": ("187/138/142", "163/100/152", "146/82/105", "64/44/65", "27/43/39"),
    "2211": ("318/219/296", "287/161/296", "204/142/209", "118/72/133", "41/74/86"),
    "2121": ("377/308/265", "351/266/275", "220/198/198", "140/102/95", "51/68/75"),
    "2221": ("663/518/545", "631/428/541", "421/348/397", "255/148/207", "73/120/146"),
    "2222": ("1199/1009/871", "1161/863/865", "846/699/699", "495/314/321", "116/231/257"),
    "3311": ("724/438/787", "718/342/814", "529/328/667", "-", "88/160/235"),
    "3322": ("2682/2136/2471", "2575/1757/2492", "2153/1622/1976", "-", "217/486/454"),
    "3333": ("6683/5730/5240", "6611/5276/5281", "5837/4572/4572", "-", "352/988/702"),
}

# Most values that may live at once, and the least reduction from FIFO on the usual graph (bra first, x y z).
PEAK_TARGETS = {"1111": 22, "2111": 28, "2211": 42, "2121": 52, "2221": 75, "2222": 100, "3333": 360}
REDUCTION_TARGETS = {"1111": 2.5, "2211": 5.0, "2121": 5.0, "2222": 8.0, "3333": 14.0}

# gpu4pyscf, its sources of August 2026 with its own build flags, unrolled Rys J and K kernels on sm_80: registers,
# bytes of spill stores, bytes of spill loads.
PEER_REGISTERS = {
    "0000": (80, 0, 0),
    "1010": (128, 0, 0),
    "1110": (168, 0, 0),
    "1111": (255, 316, 384),
    "2111": (204, 0, 0),
    "2110": (250, 0, 0),
    "2020": (200, 0, 0),
    "2200": (204, 0, 0),
    "2210": (168, 0, 0),
    "3020": (255, 8, 8),
    "3200": (255, 88, 88),
}
# Spills may be none and registers at most these where the accumulators are in memory; 255 is all that there are.
REGISTER_TARGETS = {"2111": 168, "2121": 168, "2211": 168, "2221": 255, "2222": 255}
# Flops from the targets to spherical integrals: harmonics of each side at once / at the end.
PROTOTYPE_PHASE2 = {
    "1111": (324, 324),
    "2111": (891, 945),
    "2121": (2139, 2313),
    "2211": (2961, 3159),
    "2222": (15624, 17967),
    "3333": (138621, 185473),
}
