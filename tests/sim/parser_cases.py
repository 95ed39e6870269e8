"""Kernels that each break a rule whose test needs values, and beside each one that keeps it (`NAME_ok`)."""

# ruff: noqa: B007, RUF059, SIM101, SIM118, UP031

from dataclasses import dataclass

import numpy as np

from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

_POOL = object()
_ALLOWED = {1, 3}
_ALLOWED_ok = (1, 3)
_LIMIT = 2**63
_LIMIT_ok = 2**63 - 1


def numpy_function(x):
    return np.prod(x.shape)


def numpy_function_ok(x):
    return x.shape[0] * x.shape[1]


def numpy_dtype(x):
    nl.ndarray((1, 2), dtype=np.float32)


def numpy_dtype_ok(x):
    nl.ndarray((1, 2), dtype=nl.float32)


def host_object(x):
    return _POOL


def host_object_ok(x):
    return nl.sbuf


def host_set(x):
    return 3 in _ALLOWED


def host_set_ok(x):
    return 3 in _ALLOWED_ok


def host_integer(x):
    return _LIMIT


def host_integer_ok(x):
    return _LIMIT_ok


def tensor_operator(x):
    tile = nl.load(x)
    return tile + tile


def tensor_operator_ok(x):
    tile = nl.load(x)
    return nl.add(tile, tile)


def tensor_comparison(x):
    tile = nl.load(x)
    return tile == x


def tensor_comparison_ok(x):
    tile = nl.load(x)
    return tile is None


def tensor_assignment(x):
    tile = nl.load(x)
    tile[0:1] = x[0:1]


def tensor_assignment_ok(x):
    tile = nl.load(x)
    nisa.dma_copy(dst=tile[0:1], src=x[0:1])


def truth_of_a_slice(x):
    if slice(1, 2):
        print(1)


def truth_of_a_slice_ok(x):
    tile = nl.load(x)
    if tile and x.shape[0]:
        print(1)


def truth_of_a_register(x):
    register = nisa.register_alloc(1)
    return register and 1


def truth_of_a_register_ok(x):
    register = nisa.register_alloc(1)
    while register:
        nl.load(x)
        nisa.register_move(register, 0)


def register_operator(x):
    register = nisa.register_alloc(1)
    return register + 1


def register_operator_ok(x):
    register = nisa.register_alloc(1)
    nisa.register_move(register, 2)


def index_beyond(x):
    return x[0:9, 0:1]


def index_beyond_ok(x):
    return x[0:3, 0:1]


def list_as_index(x):
    return x[[0, 1], 0:1]


def list_as_index_ok(x):
    return x[0:2, 0:1]


def break_in_a_device_loop(x):
    for i in nl.dynamic_range(3):
        break


def break_in_a_device_loop_ok(x):
    for i in nl.dynamic_range(3):
        nl.load(x)


def device_loop_in_order(x):
    def body(i):
        nl.load(x)

    with nl.no_reorder():
        nl.fori_loop(0, 3, body)


def device_loop_in_order_ok(x):
    def body(i):
        with nl.no_reorder():
            nl.load(x)

    nl.fori_loop(0, 3, body)


def offset_into_a_view(x):
    register = nisa.register_alloc(1)
    return x[0:2].ap(pattern=[[1, 2]], scalar_offset=register)


def offset_into_a_view_ok(x):
    register = nisa.register_alloc(1)
    return x.ap(pattern=[[1, 2]], scalar_offset=register)


def same_name(x):
    nl.ndarray((1, 2), dtype=nl.float32, name="sums")
    nl.ndarray((1, 2), dtype=nl.float32, name="sums")


def same_name_ok(x):
    nl.ndarray((1, 2), dtype=nl.float32, name="sums")
    nl.ndarray((1, 2), dtype=nl.float32, name="more_sums")


def unknown_keyword(x):
    nisa.memset(dst=nl.load(x), value=0, mask=1)


def unknown_keyword_ok(x):
    nisa.memset(dst=nl.load(x), value=0)


def assertion_message(x):
    assert x.shape[0] > 100, x.shape


def assertion_message_ok(x):
    assert x.shape[0] < 100, "rows"


def overflow(x):
    n = 2**62
    return 2 * n


def overflow_ok(x):
    n = 2**62
    return n // 2


def negative_power(x):
    return 2**-1


def negative_power_ok(x):
    return 2.0**-1


def percent_format(x):
    return "%d rows" % 3


def percent_format_ok(x):
    return "rows " + str(3)


def several_classes(x):
    return isinstance(x, (tuple, list))


def several_classes_ok(x):
    return isinstance(x, tuple) or isinstance(x, list)


class Grid(nl.NKIObject):
    """An object with a property."""

    def __init__(self, rows):
        self.rows = rows

    @property
    def area(self):
        return self.rows * self.rows


@dataclass
class Sizes(nl.NKIObject):
    """An object with two fields, of which one has a default."""

    rows: int
    columns: int = 2


def missing_field(x):
    return Sizes(columns=3)


def missing_field_ok(x):
    return Sizes(3).columns


class Square(nl.NKIObject):
    """An object with a method."""

    def __init__(self, rows):
        self.rows = rows

    def area(self):
        return self.rows * self.rows


def property_of_an_object(x):
    grid = Grid(3)
    return grid.area


def property_of_an_object_ok(x):
    square = Square(3)
    return square.area()


def _options(rows, **options):
    return rows


def keyword_dictionary(x):
    return _options(3, columns=4)


def keyword_dictionary_ok(x):
    return _options(rows=3)


def missing_argument(x):
    return _options()


def missing_argument_ok(x):
    return _options(3)


def loop_over_a_dictionary(x):
    for name in {"a": 1}:
        print(name)


def loop_over_a_dictionary_ok(x):
    for name in {"a": 1}.keys():
        print(name)


def length_of_a_string(x):
    return len("rows")


def length_of_a_string_ok(x):
    return len(["rows"])


def unknown_name(x):
    return nl.no_such_name


def unknown_name_ok(x):
    return nl.float32


def too_few_values(x):
    n, m, k = x.shape


def too_few_values_ok(x):
    n, m = x.shape
