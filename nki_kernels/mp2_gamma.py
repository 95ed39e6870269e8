"""Gamma of MP2 densities and gradients: products, amplitudes and a second product in one launch.

    t_ij^ab  = (i a | j b) / (eps_i + eps_j - eps_a - eps_b)        (i a | j b) = sum_Q B[i, a, Q] B[j, b, Q]
    t~_ij^ab = alpha t_ij^ab + beta t_ij^ba
    Gamma[i, a, Q] = sum_jb t~_ij^ab B[j, b, Q]

One launch covers either all ordered pairs of one set of orbitals (a closed shell, or one spin), or the pairs between
two sets: two blocks of one set, with partners t_ij^ba, or the two spins of an open shell, without (beta = 0).

    first half   (``mp2_amplitudes``)  each unordered pair once: T, U -> Theta[(i, a), (j, b)] = t~_ij^ab in HBM
    second half  (``mp2_sums``)        Gamma = Theta^T B, one product with K = all (j, b)

Count of multiplications, in units of nocc^2 nvir^2 naux: 1/2 for the first half and 1 for the second. A kernel that
kept t~_ij on chip for one i would compute every product for i, j and again for j, i: 1 and 1. What this one pays is a
transpose of 128 x 128 elements for each tile of a pair (one pass of the tensor engine, where the product takes
naux / 128), and Theta written once and read naux / cols times. The second half contracts over (j, b) without regard to
where one orbital ends, so that its tiles are full whatever nvir.

Limits: any nocc, nvir and naux with fewer than 2^31 elements of Theta (int32 offsets; ``mp2_gamma_plan.blocks`` divides
larger sets). Program: device loops over the classes of both halves' work lists; the static instruction count depends on
block, naux, group, and the sizes of blocks and remainders of the second half, never on the number of orbitals.
"""

from __future__ import annotations

import numpy as np

from nki_kernels.lang import nisa, nki, nl
from nki_kernels.mp2_amplitudes import pair_item
from nki_kernels.mp2_plan import block_kinds, rectangle_kinds, same_group
from nki_kernels.mp2_products import ALONE, PARTNERS, SAME, factors_on_chip, load_virtuals
from nki_kernels.mp2_sums import sum_classes, sum_item, sums_on_chip
from nki_kernels.mp2_theta import amplitudes_on_chip
from nki_kernels.precision.splits import split_like, sum_of_products


def pair_classes(nvir_left: int, nvir_right: int, block: int, group: int, same_groups: int, partners: int):
    """(pairs an item, what is multiplied, block kind) of the first half's classes in order; 0 pairs: no such items.

    nvir_right is 0 for one set; same_groups: see ``mp2_plan.same_group``; partners is 1 if t_ij^ba belongs to the pair
    i, j.
    """
    if partners == 1:
        kinds, mode = block_kinds(nvir_left, block), PARTNERS
    else:
        kinds, mode = rectangle_kinds(nvir_left, nvir_right, block), ALONE
    pair_kinds = [(group if group > 1 else 0, mode), (1, mode)]
    if nvir_right == 0:
        pair_kinds = pair_kinds + [(same_groups if same_groups > 1 else 0, SAME), (1, SAME)]
    else:
        pair_kinds = pair_kinds + [(0, SAME), (0, SAME)]
    classes = []
    for pair_kind in pair_kinds:
        count, what = pair_kind
        for kind in kinds:
            classes.append((count, what, kind))
    return classes


def _limits(bounds, core):
    limits = nl.ndarray((1, bounds.shape[1]), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=limits, src=bounds[core : core + 1, :])
    return limits


def _ends(limits, c: int):
    """Registers with the first item of class c, and one after its last."""
    first, last = nisa.register_alloc(), nisa.register_alloc()
    nisa.register_load(first, limits[0:1, 2 * c : 2 * c + 1])
    nisa.register_load(last, limits[0:1, 2 * c + 1 : 2 * c + 2])
    return first, last


def _first_half(factors, e_pair, work, theta, strides, mix, limits, classes):
    mem = amplitudes_on_chip(factors, e_pair, work, theta, strides, mix)
    if factors.ev_row.shape[0] == 1 and factors.ev_col.shape[0] == 1:
        load_virtuals(factors, nisa.register_alloc(0), nisa.register_alloc(0))
    for c in range(len(classes)):
        count, mode, kind = classes[c]

        def body(it):
            pair_item(mem, it, count, mode, kind)

        if count > 0:
            first, last = _ends(limits, c)
            nl.fori_loop(first, last, body)


def _second_half(mem, limits, classes, first: int):
    for c in range(len(classes)):
        m, n, k, _, resumed = classes[c]
        complete = c + 1 == len(classes) or not classes[c + 1][4]

        def body(it):
            sum_item(mem, it, m[0], n[0], k, resumed, complete)

        begin, end = _ends(limits, first + c)
        nl.fori_loop(begin, end, body)


@nki.jit
def mp2_gamma(
    bt, b, ev_row, ev_col, mix, e_pair, work, items, keep, bounds,
    nvir_left, nvir_right, left, kchunk, partners, rows, cols, depth,
):  # fmt: skip
    """Gamma [(i, a), Q] fp32 of the left orbitals, then of the right ones.

    bt [parts, norb * nblk, 128, nk, block] and b [parts, rows (i, a), naux]: B of the left and then of the right
    orbitals in fp32 or bf16, one part, or two or three parts of a bf16 split (``precision.splits``); ev_col [nblk, 128,
    row tiles] of the left, ev_row [nblk, block] of the right virtuals; mix [1, 3] = alpha, beta, alpha + beta; e_pair
    [n, group] fp32; work [n, 4 + 6 group], items [m, 3], bounds [cores, 2 classes] int32; keep [m, 1] fp32: all as made
    by ``mp2_gamma_plan``.
    left: rows (i, a) of the left orbitals; nvir_right: 0 for one set of orbitals; partners, rows, cols, depth: as
    `pair_classes` and ``mp2_sums.sum_classes`` take them.
    """
    parts, length, naux = b.shape
    gamma = nl.ndarray((length, naux), dtype=nl.float32, buffer=nl.shared_hbm)
    right = length - left if nvir_right > 0 else left
    size = left * right * (2 if nvir_right > 0 else 1)
    theta = nl.ndarray((parts * size, 1), dtype=b.dtype, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    limits = _limits(bounds, core)
    group = e_pair.shape[1]
    same_groups = same_group(ev_row.shape[0], group)
    classes = pair_classes(nvir_left, nvir_right, ev_row.shape[1], group, same_groups, partners)
    strides = [right, left, left, right]
    _first_half(
        factors_on_chip(bt, ev_row, ev_col, naux, kchunk, 1), e_pair, work, theta, strides, mix, limits, classes
    )
    if nl.num_programs(0) > 1:
        nisa.core_barrier(theta, (0, 1))
    first, partial = len(classes), gamma
    if nl.num_programs(0) > 1:
        partial = nl.ndarray((length, naux), dtype=nl.float32, buffer=nl.hbm)
    sides = [(left, right)] if nvir_right == 0 else [(left, right), (right, left)]
    for side in sides:
        M, K = side
        sums = sum_classes(M, naux, K, rows, cols, depth)
        _second_half(sums_on_chip(theta, b, gamma, partial, M, items, keep, rows, cols), limits, sums, first)
        first = first + len(sums)
    return gamma


def reference_mp2_gamma(
    bt, b, ev_row, ev_col, mix, e_pair, work, items, keep, bounds,
    nvir_left, nvir_right, left, kchunk, partners, rows, cols, depth,
):  # fmt: skip
    """The same sums in NumPy, from b alone: fp64 arithmetic on the given (rounded) factors and amplitudes."""
    left_b, right_b = b[:, :left], b[:, left:] if nvir_right else b
    nvir = nvir_right or nvir_left
    (nblk, block), group = ev_row.shape, e_pair.shape[1]
    classes = pair_classes(nvir_left, nvir_right, block, group, same_group(nblk, group), partners)
    energies = _pair_energies(ev_row.shape, e_pair, work, bounds, classes)
    vir_left = ev_col.transpose(0, 2, 1).reshape(len(ev_col), -1)[:, : ev_row.shape[1]].ravel()[:nvir_left]
    vir = vir_left[:, None].astype(np.float64) + ev_row.ravel()[:nvir]
    theta = np.empty((left, right_b.shape[1]))
    for i in range(left // nvir_left):
        for j in range(right_b.shape[1] // nvir):
            at = slice(i * nvir_left, (i + 1) * nvir_left), slice(j * nvir, (j + 1) * nvir)
            orbital = j + left // nvir_left if nvir_right else j
            T = sum_of_products(left_b[:, at[0]].swapaxes(1, 2), right_b[:, at[1]].swapaxes(1, 2))
            t = T / (energies[i, orbital] + vir)
            theta[at] = mix[0, 0] * t + mix[0, 1] * t.T if partners else mix[0, 2] * t
    rounded = split_like(theta, b)
    gamma = sum_of_products(rounded.swapaxes(1, 2), right_b)
    if not nvir_right:
        return gamma
    return np.concatenate((gamma, sum_of_products(rounded, left_b)))


def _pair_energies(blocks, e_pair, work, bounds, classes):
    """eps_i + eps_j by orbital numbers, NaN for pairs that no item has."""
    norb = int(work[:, : 2 + 2 * e_pair.shape[1]].max()) // blocks[0] + 1
    energies = np.full((norb, norb), np.nan)
    for limits in bounds:
        for c, (count, what, _) in enumerate(classes):
            for it in range(limits[2 * c], limits[2 * c + 1]):
                for g in range(count):
                    j = work[it, 2 + 2 * g] // blocks[0]
                    i = j if what == SAME else work[it, 0] // blocks[0]
                    energies[i, j] = energies[j, i] = e_pair[it, g]
    return energies
