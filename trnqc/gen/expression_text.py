"""The text of a value for people to read, independent of the target language."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trnqc.gen.values import Value

# Precedence of operations. An operand of lower precedence is put in parentheses.
ATOM, SIGN, PRODUCT, SUM, ORDER, EQUALITY, NOT, AND, OR = 9, 8, 7, 6, 5, 4, 3, 2, 1
# The sign and the precedence of the operations that are written between or before their operands.
INFIX = {
    "or": ("or", OR),
    "and": ("and", AND),
    "eq": ("==", EQUALITY),
    "lt": ("<", ORDER),
    "le": ("<=", ORDER),
    "add": ("+", SUM),
    "sub": ("-", SUM),
    "mul": ("*", PRODUCT),
    "div": ("/", PRODUCT),
    "idiv": ("//", PRODUCT),
    "mod": ("%", PRODUCT),
}
PREFIX = {"neg": ("-", SIGN), "not": ("not ", NOT)}


def expression(value: Value) -> str:
    """The text of a value on one line. Shared subexpressions are written out each time."""
    return _expression(value)[0]


def _expression(value: Value) -> tuple[str, int]:
    """The text of a value and its precedence."""
    op, args = value.op, value.args
    match op:
        case "const":
            return repr(value.attr), ATOM if value.attr >= 0 else SIGN
        case "var":
            return value.attr, ATOM
        case "load":
            return f"{value.attr.name}[{expression(args[0])}]", ATOM
        case "cast":
            return f"{value.dtype}({expression(args[0])})", ATOM
    if op in PREFIX:
        sign, precedence = PREFIX[op]
        return f"{sign}{_inside(args[0], precedence)}", precedence
    if op in INFIX:
        sign, precedence = INFIX[op]
        return f"{_inside(args[0], precedence)} {sign} {_inside(args[1], precedence + 1)}", precedence
    return f"{op}({', '.join(expression(a) for a in args)})", ATOM


def _inside(value: Value, least: int) -> str:
    """The text of an operand, in parentheses if its precedence is lower than `least`."""
    text, precedence = _expression(value)
    return text if precedence >= least else f"({text})"
