"""Kernels that each break one rule of the language. The linter reads this source; the kernels never run."""

# ruff: noqa: B007, SIM118

import os

import numpy as np

from tests.sim import lint_parser_cases
from trnqc.sim import jit
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl
from trnqc.sim.nki.language import dynamic_range


def identity(x):
    if x.shape is not None and x.shape is x.shape:
        return


def identity_of_none(x):
    if x is None or x is not None:
        return


def keyword_only(x, *, n):
    nl.ndarray((n, 1), nl.float32)


def no_keywords(x, **options):
    nl.load(x)


def list_argument(x: list):
    nl.load(x[0])


def list_default(x, sizes=[1, 2]):  # noqa: B006
    nl.load(x[0])


def tries(x):
    try:
        nl.load(x)
    except ValueError:
        print("no")


def lambdas(x):
    nl.fori_loop(0, 2, lambda i: nl.load(x))


def generates(x):
    yield nl.load(x)


def generator_expression(x):
    return sum(n for n in x.shape)


def tensor_comprehension(x):
    return [nl.load(x[i]) for i in range(3)]


def numpy_call(x):
    return np.prod(x.shape)


def library_call(x):
    return os.cpu_count()


def product_of_tensors(x):
    a = nl.load(x)
    b = a[:, 0:1]
    return a * b


def in_place(x):
    a = nl.load(x)
    a += 1


def negated(x):
    tile = nl.ndarray((4, 4), x.dtype)
    return -tile.reshape((4, 2, 2))


def of_an_argument(x):
    y = x.dtype
    return x + 1, y


def assigned(x):
    a = nl.load(x)
    a[0, 0] = 1


def unknown_function(x):
    return nl.arange(4)


def unknown_instruction(x):
    nisa.tensor_copy_dynamic_src(x, x)


def nested_loops(x):
    def inner(j):
        nl.load(x)

    def outer(i):
        nl.fori_loop(0, 3, inner)

    nl.fori_loop(0, 3, outer)


def helper(x):
    return [*x.shape]


def through_a_helper(x):
    helper(x)


def enumerates(x):
    for i, n in enumerate(x.shape):
        print(i, n)


def old_loop(x):
    for i in nl.dynamic_range(3):
        nl.load(x)


def raises(x):
    if x.shape[0] > 3:
        raise ValueError(x.shape)


def with_file(x):
    with open("f"):
        nl.load(x)


def decorated_helper(x):
    @jit
    def inner(y):
        nl.load(y)

    inner(x)


class Plain:
    pass


def plain_class(x):
    return Plain()


def imports(x):
    import os

    return os


def builtin(x):
    return sorted(x.shape)


class Config(nl.NKIObject):
    """Configuration that a kernel may build."""

    def __init__(self, rows):
        self.rows = rows


def tile_of(x, rows):
    tile = nl.ndarray((rows, x.shape[1]), x.dtype)
    nisa.dma_copy(dst=tile, src=x[0:rows, :])
    return tile


def clean(x, steps=(1, 2)):
    """Uses everything that the language has."""
    config = Config(min(x.shape[0], nl.tile_size.pmax))
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    sizes = []
    for step in steps:
        sizes.append(2 * step)
    for n in sizes:
        tile = tile_of(x, config.rows)
        if n > 2 and tile.shape[0] != 3:
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=float(n))
        assert tile.shape[1] == x.shape[1], f"rows {tile.shape}"
        nisa.dma_copy(dst=out[0 : config.rows, :], src=tile)
    names = {"a": 1}
    for key in names.keys():
        print(key, len(names), (x.shape[0] + 127) // 128 * 2)

    def body(i):
        row = nl.ndarray((1, x.shape[1]), x.dtype)
        nisa.dma_copy(dst=row, src=x.ap(pattern=[[x.shape[1], 1], [1, x.shape[1]]], scalar_offset=i))

    nl.fori_loop(0, 3, body)
    return out


def bare_old_loop(x):
    for i in dynamic_range(3):
        nl.load(x.ap([[2, 1], [1, 2]], scalar_offset=i))


def scalars(x):
    nl.fori_loop(0, nisa.scalar_load(x), tile_of)


def while_register(x):
    register = nisa.register_alloc(3)
    while register:
        nisa.register_load(register, x)


def static_loop(x):
    for i in nl.affine_range(3):
        nl.load(x[i])


def compared_objects(x, first: Config):
    second = Config(2)
    if first == second:
        nl.load(x)


def object_of_another_module(x):
    return lint_parser_cases.Sizes(3)
