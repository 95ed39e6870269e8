"""Rewriting of values.

A rule takes a value whose operands have been rewritten already, and returns this value or a replacement. The rules of
`exact` do not change any bit of a result; `contract` changes the rounding. Common subexpressions need no rule, because
equal values are one object; the rule `ordered` makes a + b and b + a equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from trnqc.errors import ProgramError
from trnqc.gen import statements as st
from trnqc.gen.arrays import Array
from trnqc.gen.interpreter import evaluate
from trnqc.gen.values import FLOATS, INTEGERS, Value, const, rebuilt, walk

Rule = Callable[[Value], Value]
COMMUTES = ("add", "mul", "eq", "and", "or")


def rewrite(roots: Sequence[Value], *rules: Rule) -> tuple[Value, ...]:
    """Apply the rules in order to every value of the roots' expressions, to each value once and after its operands."""
    known: dict[Value, Value] = {}
    for value in walk(tuple(roots)):
        new = rebuilt(value, tuple(known[a] for a in value.args))
        for rule in rules:
            new = rule(new)
        known[value] = new
    return tuple(known[root] for root in roots)


def fold(value: Value) -> Value:
    """Compute operations on constants with the interpreter's arithmetic."""
    if not value.args or value.dtype == "bool" or any(a.op != "const" for a in value.args):
        return value
    if value.op in ("load", "idiv", "mod") and (value.op == "load" or value.args[1].attr == 0):
        return value
    result = evaluate(value, {})
    if value.dtype in INTEGERS:
        return const(int(result), value.dtype)
    return const(float(result), value.dtype)


def neutral(value: Value) -> Value:
    """Remove operations with 1 and 0. For floats, only identities that also hold for -0, infinity and NaN are used."""
    if value.op not in ("add", "sub", "mul", "div", "idiv", "select", "neg"):
        return value
    a, b = value.args[0], value.args[-1]
    if value.op == "select":
        return b if value.args[1] is b else value
    if value.op == "neg":
        return a.args[0] if a.op == "neg" else value
    if value.op in ("mul", "div", "idiv") and _is(b, 1):
        return a
    if value.op == "mul" and _is(a, 1):
        return b
    whole = value.dtype in INTEGERS
    if value.op in ("add", "sub") and _is(b, 0) and (whole or (value.op == "sub") == (str(b.attr) == "0.0")):
        return a
    if value.op == "add" and _is(a, 0) and (whole or str(a.attr) == "-0.0"):
        return b
    if value.op == "mul" and whole and (_is(a, 0) or _is(b, 0)):
        return const(0, value.dtype)
    return value


def strength(value: Value) -> Value:
    """Replace division by a power of two, multiplication by -1 or 2, and addition of a negated value."""
    if value.op == "div" and value.args[1].op == "const":
        a, b = value.args
        if b.attr and np.isfinite(b.attr) and abs(np.frexp(b.attr)[0]) == 0.5 and 1e-30 < abs(b.attr) < 1e30:
            return a * const(1 / b.attr, value.dtype)
    if value.op == "mul" and value.dtype in FLOATS:
        for number, other in (value.args, value.args[::-1]):
            if _is(number, -1):
                return -other
            if _is(number, 2):
                return other + other
    if value.op == "add" and value.args[1].op == "neg":
        return value.args[0] - value.args[1].args[0]
    if value.op == "sub" and value.args[1].op == "neg":
        return value.args[0] + value.args[1].args[0]
    return value


def ordered(value: Value) -> Value:
    """Order the operands of commutative operations by their keys, so that equal values become one object."""
    if value.op in COMMUTES and value.args[0].key > value.args[1].key:
        return rebuilt(value, value.args[::-1])
    return value


EXACT = (fold, neutral, strength, ordered)


def exact(*roots: Value) -> tuple[Value, ...]:
    """Apply all rules that do not change any bit of a result, except for the payload of NaNs."""
    return rewrite(roots, *EXACT)


def contract(*roots: Value) -> tuple[Value, ...]:
    """Replace a sum with a product that is used only once by a fused multiply-add. This changes the rounding."""
    uses: dict[Value, int] = {}
    for value in walk(roots):
        for a in value.args:
            uses[a] = uses.get(a, 0) + 1
    for root in roots:
        uses[root] = uses.get(root, 0) + 1
    known: dict[Value, Value] = {}
    for value in walk(roots):
        new = rebuilt(value, tuple(known[a] for a in value.args))
        for place in (1, 0) if value.op in ("add", "sub") and value.dtype in FLOATS else ():
            product, other = value.args[place], known[value.args[1 - place]]
            if product.op == "mul" and uses[product] == 1:
                new = _fused(value.op, place, known[product].args, other)
                break
        known[value] = new
    return tuple(known[root] for root in roots)


def _fused(op: str, place: int, factors: tuple[Value, ...], other: Value) -> Value:
    a, b = factors
    if op == "sub" and place == 1:
        a = -a
    if op == "sub" and place == 0:
        other = -other
    return Value("fma", other.dtype, (a, b, other))


def in_statements(block: st.Block, *rules: Rule) -> st.Block:
    """Apply the rules to every value in the statements of a block."""
    return st.Block(tuple(_statement(s, rules) for s in block.body), block.title)


def _statement(s: st.Statement, rules: tuple[Rule, ...]) -> st.Statement:
    def new(value: Value) -> Value:
        return rewrite((value,), *rules)[0]

    match s:
        case st.Block():
            return in_statements(s, *rules)
        case st.Let() | st.Declare() | st.Assign():
            return type(s)(s.var, new(s.value))
        case st.Store() | st.Accumulate():
            where = None if s.where is None else new(s.where)
            return type(s)(s.array, new(s.index), new(s.value), where)
        case st.GatherRows() | st.ScatterRows():
            return type(s)(s.target, s.source, new(s.start), new(s.count))
        case st.Unpack() | st.Pack():
            return replace(s, start=new(s.start), place=new(s.place))
        case st.For():
            return st.For(s.var, new(s.begin), new(s.end), in_statements(s.body, *rules), s.step)
        case st.While():
            return st.While(new(s.condition), in_statements(s.body, *rules))
        case st.If():
            return st.If(new(s.condition), in_statements(s.then, *rules), in_statements(s.orelse, *rules))
        case st.Call():
            return st.Call(s.function, tuple(_argument(a, new) for a in s.arguments))
    return s


def _argument(a: Value | Array | st.View, new: Rule) -> Value | Array | st.View:
    if isinstance(a, st.View):
        return st.View(a.array, new(a.begin), a.flat)
    return new(a) if isinstance(a, Value) else a


def horner(coefficients: Sequence[float], x: Value) -> Value:
    """The polynomial sum_k c[k] x^k, evaluated by Horner's scheme with fused multiply-adds."""
    if not coefficients:
        raise ProgramError("a polynomial needs at least one coefficient")
    total = const(coefficients[-1], x.dtype)
    for c in reversed(coefficients[:-1]):
        total = Value("fma", x.dtype, (total, x, const(c, x.dtype)))
    return total


def _is(value: Value, number: int) -> bool:
    return value.op == "const" and value.attr == number
