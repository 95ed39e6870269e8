"""Kernels that each hold one construct that the parser of NKI 0.6 refuses, and beside each one that it accepts.

The linter reads this source, and the interpreter runs it. `NAME_ok` does the same within the language.
"""

# ruff: noqa: C416, C420, E731, F841, RET504, RUF059

import functools
import math
from dataclasses import dataclass

from tests.sim import lint_parser_helpers as helpers
from trnqc.sim import jit
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl


def loop_target(x):
    for a, b in ((1, 2), (3, 4)):
        print(a, b)


def loop_target_ok(x):
    for pair in ((1, 2), (3, 4)):
        a, b = pair
        print(a, b)


def loop_attribute(x, mem):
    for mem.turn in range(3):
        print(mem.turn)


def loop_attribute_ok(x, mem):
    for turn in range(3):
        mem.turn = turn


def for_else(x):
    for i in range(3):
        print(i)
    else:
        print("done")


def for_else_ok(x):
    for i in range(3):
        print(i)
    print("done")


def while_else(x):
    i = 0
    while i < 3:
        i = i + 1
    else:
        print("done")


def while_else_ok(x):
    i = 0
    while i < 3:
        i = i + 1
    print("done")


def with_names(x):
    with nl.no_reorder() as order:
        print(order)


def with_names_ok(x):
    with nl.no_reorder():
        print(x.shape)


def inner_function(x):
    def double(n):
        return 2 * n

    print(double(3))


def _double(n):
    return 2 * n


def inner_function_ok(x):
    print(_double(3))


def passed_on(x):
    def body(i):
        nl.load(x)

    _loop(body)


def _loop(body):
    nl.fori_loop(0, 3, body)


def passed_on_ok(x):
    def body(i):
        nl.load(x)

    nl.fori_loop(0, 3, body)


def called_too(x):
    def body(i):
        nl.load(x)

    nl.fori_loop(0, 3, body)
    body(3)


def called_too_ok(x):
    def body(condition):
        nl.load(x)
        return condition

    nl.while_loop(nisa.register_alloc(0), body_fun=body)


def inner_class(x):
    class Config(nl.NKIObject):
        rows: int

    return Config


@dataclass
class Sizes(nl.NKIObject):
    """Sizes that a kernel may make."""

    rows: int

    @staticmethod
    def tall(rows):
        return rows > 128

    def twice(self):
        return 2 * self.rows


def inner_class_ok(x):
    sizes = Sizes(3)
    print(sizes.twice(), Sizes.tall(3))


class Wide(Sizes):
    """A class whose base is no base class of the language."""


def base_class(x):
    return Wide(3)


def base_class_ok(x):
    return Sizes(3)


@dataclass
class Listed(nl.NKIObject):
    """A class with a method that is outside the language."""

    rows: int

    def all_rows(self):
        return [n for n in self.rows]


def method_of_a_class(x):
    return Listed(3)


def method_of_a_class_ok(x):
    return Sizes(3)


def lambda_function(x):
    double = lambda n: 2 * n
    return double(3)


def lambda_function_ok(x):
    return _double(3)


def list_comprehension(x):
    return [2 * n for n in x.shape]


def list_comprehension_ok(x):
    sizes = []
    for n in x.shape:
        sizes.append(2 * n)
    return sizes


def dict_comprehension(x):
    return {name: 1 for name in ("a", "b")}


def dict_comprehension_ok(x):
    found = {}
    for name in ("a", "b"):
        found[name] = 1
    return found


def try_statement(x):
    try:
        nl.load(x)
    finally:
        print("done")


def try_statement_ok(x):
    nl.load(x)
    print("done")


def raise_statement(x):
    if x.shape[0] > 3:
        raise KeyError


def raise_statement_ok(x):
    assert x.shape[0] <= 3, "rows"


def match_statement(x):
    match x.shape[0]:
        case 1:
            nl.load(x)


def match_statement_ok(x):
    if x.shape[0] == 1:
        nl.load(x)


def del_statement(x):
    sizes = [1, 2]
    del sizes[0]


def del_statement_ok(x):
    sizes = [1, 2]
    sizes.pop(0)


def import_statement(x):
    from math import ceil

    return ceil(2.5)


def import_statement_ok(x):
    return math.ceil(2.5)


_turn = 0


def global_statement(x):
    global _turn
    _turn = 1


def global_statement_ok(x):
    turn = _turn + 1
    return turn


def nonlocal_statement(x):
    turn = 0

    def body(i):
        nonlocal turn
        turn = 1

    nl.fori_loop(0, 3, body)


def nonlocal_statement_ok(x):
    turn = [0]

    def body(i):
        turn[0] = 1

    nl.fori_loop(0, 3, body)


def walrus(x):
    if (n := x.shape[0]) > 3:
        print(n)


def walrus_ok(x):
    n = x.shape[0]
    if n > 3:
        print(n)


def star_argument(x, kinds):
    nl.ndarray((1, 2), *kinds)


def star_argument_ok(x, kinds):
    nl.ndarray((1, 2), kinds[0])


def star_target(x):
    first, *rest = x.shape
    return first, rest


def star_target_ok(x):
    first, rest = x.shape[0], x.shape[1:]
    return first, rest


def star_keywords(x, options):
    nl.ndarray((1, 2), **options)


def star_keywords_ok(x, options):
    nl.ndarray((1, 2), dtype=options["dtype"])


def star_signature(x, *sizes):
    nl.ndarray(sizes, x.dtype)


def star_signature_ok(x, sizes):
    nl.ndarray(sizes, x.dtype)


def merged_dictionaries(x, options):
    return {**options, "rows": 3}


def merged_dictionaries_ok(x, options):
    options["rows"] = 3
    return options


def format_specification(x):
    print(f"{x.shape[0]:4d} rows")


def format_specification_ok(x):
    print(f"{x.shape[0]} rows")


def element_in_a_tuple(x, sums):
    n, sums[0] = x.shape


def element_in_a_tuple_ok(x, sums):
    n, m = x.shape
    sums[0] = m


def attribute_in_a_tuple(pair, mem):
    n, (mem.rows, m) = pair


def attribute_in_a_tuple_ok(pair, mem):
    n, (rows, m) = pair
    mem.rows = rows


def several_targets(x, sums):
    n = sums[0] = x.shape[0]


def several_targets_ok(x, sums):
    n = m = x.shape[0]
    sums[0] = n


def other_builtin(x):
    return sum(x.shape)


def other_builtin_ok(x):
    return divmod(abs(int(float(x.shape[0]))), len(x.shape)), type(x)


def loose_range(x):
    return list(range(3))


def loose_range_ok(x):
    found = []
    for n in range(3):
        found.append(n)
    return found


def min_of_three(x):
    return min(x.shape[0], x.shape[1], 3)


def min_of_three_ok(x):
    return min(min(x.shape[0], x.shape[1]), 3), min(x.shape)


def max_of_three(x):
    return max(x.shape[0], 1, 3)


def max_of_three_ok(x):
    return max(x.shape[0], 3)


def max_with_default(x):
    return max(x.shape, default=1)


def max_with_default_ok(x):
    return max(x.shape)


def list_method(x):
    sizes = [3, 1]
    sizes.insert(0, 2)


def list_method_ok(x):
    sizes = [3, 1]
    sizes.append(2)
    sizes.extend([4])
    sizes.remove(4)
    sizes.reverse()
    return sizes.copy(), sizes.count(3), sizes.index(3)


def list_sort(x, mem):
    mem.sizes.sort()


def list_sort_ok(x, mem):
    mem.sizes.clear()


def dict_method(x):
    found = {"a": 1}
    found.update({"b": 2})


def dict_method_ok(x):
    found = {"a": 1}
    found.setdefault("b", 2)
    return found.get("b"), found.items(), found.keys(), found.values()


def string_method(x):
    return "name".upper()


def string_method_ok(x):
    return f"{'NAME'}"


def maths(x):
    return math.log(x.shape[0])


def maths_ok(x):
    return math.ceil(1.5), math.floor(1.5), math.gcd(4, 6), math.log2(4), math.log10(4), math.pow(2, 3), math.sqrt(4)


def matrix_product(x, y):
    return x @ y


def matrix_product_ok(x, y):
    return nl.matmul(nl.load(x), nl.load(y), transpose_x=True)


def dict_key(x):
    return {1: "a"}


def dict_key_ok(x):
    return {"1": "a"}


@functools.cache
def _cached(n):
    return 2 * n


def decorator(x):
    return _cached(3)


@jit
def _inlined(n):
    return 2 * n


def decorator_ok(x):
    return _inlined(3)


def chained_in(x):
    return 1 in x.shape == x.shape


def chained_in_ok(x):
    return 1 in x.shape and 0 < x.shape[0] < 3


def large_integer(x):
    return 9223372036854775808


def large_integer_ok(x):
    return 9223372036854775807


def another_file(x):
    helpers.calls_a_helper(x)


def another_file_ok(x):
    helpers.within_the_language(x)
