"""General products of matrices, one or a stack of them.

    out[z] = alpha a_t[z].T @ b[z] + beta c[z]

Operands have one part, or those of a split (``nki_kernels.precision.splits``). The host makes the
work list (``plan.product_list``), which has alpha and beta, so that one program serves all of their values. Products of
one tile each are loaded, multiplied and stored by groups (``stacks``).

Limits: all extents >= 1; fewer than 2^31 elements in each array. Sums are fp32, in PSUM and SBUF. The number of
instructions depends on the sizes of blocks and remainders, and not on Z, M, N or K.
"""

from __future__ import annotations

import numpy as np

from nki_kernels.blas.blocks import Kind, loop, matrix, work
from nki_kernels.blas.plan import is_stacked, items_of, product_kinds, stack_kinds
from nki_kernels.blas.stacks import stack, stack_loop
from nki_kernels.cores import range_of_core
from nki_kernels.lang import nki, nl
from nki_kernels.precision.splits import sum_of_products


def run_kinds(mem, kinds, count: int, K: int, depth: int, group: int, update: int):
    """The loops of all kinds of blocks, each for full and for last items; count: number of products.

    Last items add to the sums of full ones in HBM. On two cores these lie in memory of each core, so that both may
    compute a block (``cores``).
    """
    first = 0
    cores = nl.num_programs(0) if nl.program_ndim() > 0 else 1
    c, out, partial, items = mem.c, mem.out, mem.out, items_of(K, depth)
    if len(items) > 1 and cores > 1:
        partial = nl.ndarray(out.shape, dtype=nl.float32, buffer=nl.hbm)
    for block in kinds:
        m, n, diagonal, blocks = block
        for x in range(len(items)):
            k, each, resumed = items[x]
            mem.c = partial if resumed else c
            mem.out = out if x == len(items) - 1 else partial
            kind = Kind(m=m, n=n, k=k, diagonal=diagonal, summed=each > 1, update=resumed or update == 1)
            loop(mem, kind, first, count * blocks, each, group)
            first = first + count * blocks * each


def run_stacks(mem, Z: int, group: int):
    """The loops over full and last items of a stack. Cores have equally many items (``range_of_core``)."""
    cores = nl.num_programs(0) if nl.program_ndim() > 0 else 1
    core = nl.program_id(0) if nl.program_ndim() > 0 else 0
    first = 0
    for kind in stack_kinds(Z, group):
        products, count = kind
        begin, end = range_of_core(count, core, cores)
        stack_loop(mem, first + begin, first + end, products)
        first = first + count


@nki.jit
def blas_gemm(a_t, b, c, items, factors, rows, cols, depth, group, update):
    """a_t[parts, Z, K, M], b[parts, Z, K, N], c [Z, M, N] fp32; returns [Z, M, N] fp32.

    items [n, 3] int32, factors [n, 3] fp32: as ``plan.product_list`` returns them; rows, cols, depth, group: as
    ``plan.block_sizes`` does. update: 1 if c is read, else 0, and c may have any shape.
    """
    parts, Z, K, M = a_t.shape
    N = b.shape[3]
    assert b.shape[1] == Z and b.shape[2] == K, (
        f"operands differ: a_t is [parts, Z, K, M] = {a_t.shape}, b is {b.shape}"
    )
    out = nl.ndarray((Z, M, N), dtype=nl.float32, buffer=nl.shared_hbm)
    if is_stacked(M, N, K, group):
        run_stacks(stack(a_t, b, [c] if update == 1 else [], out, items, factors, group), Z, group)
        return out
    column = out.reshape((Z * M * N, 1))
    previous = c.reshape((Z * M * N, 1)) if update == 1 else column
    left, right = matrix(a_t, min(rows, M)), matrix(b, min(cols, N))
    mem = work(left, right, parts, previous, column, N, items, factors, rows, cols)
    run_kinds(mem, product_kinds(M, N, rows, cols), Z, K, depth, group, update)
    return out


def reference_blas_gemm(a_t, b, c, items, factors, rows, cols, depth, group, update):
    """The same sums in NumPy: fp64 arithmetic on the given (rounded) parts, rounded once to fp32."""
    total = sum_of_products(a_t, b)
    alpha, beta = scale_of(factors)
    return np.asarray(alpha * total + beta * c if update else alpha * total, np.float32)


def scale_of(factors):
    """alpha and beta of a work list: those of its first item, which begins a block."""
    return float(factors[0, 1]), float(factors[0, 2])
