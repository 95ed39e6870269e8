"""Write a program one statement after another, with fresh names and with nested bodies as ``with`` blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from trnqc.errors import ProgramError
from trnqc.gen import statements as st
from trnqc.gen.arrays import Array
from trnqc.gen.values import Number, Value, Var, const, fma


def dot(terms: Iterable[tuple[Value, Value]], start: Value | None = None, *, dtype: str = "") -> Value:
    """The sum of products ``start + a0 b0 + a1 b1 + ...``, written with fused multiply-adds.

    Parameters
    ----------
    terms : iterable of (Value, Value)
        The pairs of factors, in the order of summation.
    start : Value, optional
        The value to which the products are added.
    dtype : str, optional
        The type of the result 0 of a sum that has neither terms nor a start.

    Returns
    -------
    Value
        The sum. Without a start, the first product is not fused.

    Raises
    ------
    ProgramError
        If there are neither terms, nor a start, nor a type.
    """
    total = start
    for a, b in terms:
        total = a * b if total is None else fma(a, b, total)
    if total is not None:
        return total
    if not dtype:
        raise ProgramError("a sum without terms needs a start or a dtype")
    return const(0, dtype)


def horner(coefficients: Sequence[float], x: Value) -> Value:
    """The polynomial sum_k c[k] x^k, evaluated by Horner's scheme with fused multiply-adds."""
    if not coefficients:
        raise ProgramError("a polynomial needs at least one coefficient")
    total = const(coefficients[-1], x.dtype)
    for c in reversed(coefficients[:-1]):
        total = fma(total, x, const(c, x.dtype))
    return total


class Builder:
    """The body of a function under construction.

    Statements are appended to `body`, or, inside a ``with`` block, to the body of that block. A name consists of a stem
    and a number, ``x_1``, ``x_2``, ..., and a builder never returns the same name twice. A name without a number, such
    as that of a parameter, is never returned.

    Examples
    --------
    A dot product of two arrays of n elements:

    >>> from trnqc.gen import Array, Var, const, listing
    >>> n, x, y, out = Var("n", "i64"), Array("x", "f64"), Array("y", "f64"), Array("out", "f64")
    >>> b = Builder()
    >>> total = b.declare("total", const(0.0))
    >>> with b.loop("i", n) as i:
    ...     b.assign(total, dot([(x[i], y[i])], total))
    >>> b.store(out[0], total)
    >>> print(listing(b.function("dot", (n, x, y, out))), end="")
    function dot(n: i64, x[?]: f64, y[?]: f64, out out[?]: f64):
      var total_1: f64 = 0.0
      for i_1 in 0 .. n:
        total_1 := fma(x[i_1], y[i_1], total_1)
      out[0] = total_1
    """

    def __init__(self) -> None:
        self.body: list[st.Statement] = []
        self._counts: Counter[str] = Counter()

    def function(
        self, name: str, params: Iterable[Value | Array], *, group: Value | None = None, title: str = ""
    ) -> st.Function:
        """The function with this body. See `statements.Function` for the arguments."""
        return st.Function(name, tuple(params), st.block(self.body), group, title)

    # Names

    def name(self, stem: str) -> str:
        """A name that this builder has not returned before."""
        self._counts[stem] += 1
        return f"{stem}_{self._counts[stem]}"

    def fresh(self, stem: str, dtype: str) -> Value:
        """A variable with a fresh name. The caller adds the statement that introduces it."""
        return Var(self.name(stem), dtype)

    # Statements

    def add(self, *statements: Any) -> None:
        """Append statements, or nested lists of statements."""
        self.body += st.block(*statements).body

    def let(self, name: str | Value, value: Value) -> Value:
        """Introduce a variable that never changes, and return it.

        Parameters
        ----------
        name : str or Value
            The stem of a fresh name, or the variable itself.
        value : Value
            The value of the variable. If `name` is a stem and the value is a constant or a variable, the value itself
            is returned and no statement is added.
        """
        if isinstance(name, str) and value.op in ("const", "var"):
            return value
        return self._introduce(st.Let, name, value)

    def declare(self, name: str | Value, value: Value) -> Value:
        """Introduce a variable with an initial value that `assign` may change. See `let` for the arguments."""
        return self._introduce(st.Declare, name, value)

    def _introduce(self, kind: type[st.Let] | type[st.Declare], name: str | Value, value: Value) -> Value:
        variable = self.fresh(name, value.dtype) if isinstance(name, str) else name
        self.add(kind(variable, value))
        return variable

    def array(
        self,
        stem: str,
        dtype: str,
        shape: tuple[int, ...],
        space: str = "local",
        *,
        lanes: bool = False,
        data: tuple[Number, ...] | None = None,
    ) -> Array:
        """Introduce a local or shared array, or a constant table, with a fresh name. See `Array` for the arguments."""
        array = Array(self.name(stem), dtype, shape, space, lanes, data)
        self.add(st.DeclareArray(array))
        return array

    def assign(self, variable: Value, value: Value) -> None:
        self.add(st.Assign(variable, value))

    def store(self, element: Value, value: Value | Number, where: Value | None = None) -> None:
        """Append a[i, j] = v, written ``store(a[i, j], v)``, under a condition if there is one."""
        self.add(st.store(element, value, where))

    def accumulate(self, element: Value, value: Value | Number) -> None:
        """Append a[i, j] += v, written ``accumulate(a[i, j], v)``."""
        self.add(st.accumulate(element, value))

    def call(self, function: st.Function, *arguments: Value | Array | st.View) -> None:
        self.add(st.Call(function, arguments))

    def prefetch(self, element: Value) -> None:
        self.add(st.prefetch(element))

    def barrier(self) -> None:
        self.add(st.Barrier())

    # Nested bodies

    @contextmanager
    def block(self, title: str) -> Iterator[None]:
        """A block of statements with a title. Names that it introduces can be used after it."""
        with self._inner() as body:
            yield
        self.add(st.block(body, title=title))

    @contextmanager
    def loop(self, name: str | Value, end: Value | int, begin: Value | int = 0, step: int = 1) -> Iterator[Value]:
        """A loop over begin, begin + step, ... < end. Yields the loop variable, an i64 if `name` is a stem."""
        variable = self.fresh(name, "i64") if isinstance(name, str) else name
        with self._inner() as body:
            yield variable
        self.add(st.loop(variable, end, body, begin=begin, step=step))

    @contextmanager
    def loop_while(self, condition: Value) -> Iterator[None]:
        with self._inner() as body:
            yield
        self.add(st.While(condition, st.block(body)))

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Statements that are executed if the condition holds. The condition is the same on every lane."""
        with self._inner() as body:
            yield
        self.add(st.If(condition, st.block(body)))

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """Statements that are executed if the condition of the preceding `when` block does not hold."""
        before = self.body[-1] if self.body else None
        if not isinstance(before, st.If) or before.orelse.body:
            raise ProgramError("otherwise() must directly follow a when() block")
        with self._inner() as body:
            yield
        self.body[-1] = st.If(before.condition, before.then, st.block(body))

    @contextmanager
    def _inner(self) -> Iterator[list[st.Statement]]:
        outer, self.body = self.body, []
        try:
            yield self.body
        finally:
            self.body = outer
