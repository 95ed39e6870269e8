"""Symbolic counts: polynomials in the symbols of extents, such as 6 N^6 or C V^3 O, which compare exactly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from trnqc.errors import InputError

# ((symbol, power), ...) sorted by symbol, no power zero.
Monomial = tuple[tuple[str, int], ...]


def _monomial(powers: Mapping[str, int]) -> Monomial:
    return tuple(sorted((symbol, power) for symbol, power in powers.items() if power))


@dataclass(frozen=True)
class MonomialSum:
    """A sum of monomials with rational factors; powers may be negative, as in V^2 B^-2.

    Examples
    --------
    >>> n, v = MonomialSum.symbol("N"), MonomialSum.symbol("V", 2)
    >>> print(6 * n**2 + v)
    6 N^2 + V^2
    >>> (6 * n**2 + v).at({"N": 10, "V": 3})
    609
    """

    terms: tuple[tuple[Monomial, Fraction], ...] = ()

    @staticmethod
    def of(terms: Iterable[tuple[Monomial, Fraction]]) -> MonomialSum:
        """Return the sum of (monomial, factor)."""
        total: dict[Monomial, Fraction] = {}
        for monomial, factor in terms:
            total[monomial] = total.get(monomial, Fraction(0)) + factor
        return MonomialSum(tuple(sorted((m, f) for m, f in total.items() if f)))

    @staticmethod
    def number(value: int | Fraction) -> MonomialSum:
        """Return a constant."""
        return MonomialSum.of([((), Fraction(value))])

    @staticmethod
    def symbol(name: str, power: int = 1) -> MonomialSum:
        """Return a power of a symbol."""
        return MonomialSum.of([(_monomial({name: power}), Fraction(1))])

    @staticmethod
    def product(symbols: Iterable[str]) -> MonomialSum:
        """Return the monomial of the given symbols, each to the power of its number of occurrences."""
        powers: dict[str, int] = {}
        for symbol in symbols:
            powers[symbol] = powers.get(symbol, 0) + 1
        return MonomialSum.of([(_monomial(powers), Fraction(1))])

    def __add__(self, other: MonomialSum) -> MonomialSum:
        return MonomialSum.of((*self.terms, *other.terms))

    def __mul__(self, other: MonomialSum | int | Fraction) -> MonomialSum:
        if not isinstance(other, MonomialSum):
            other = MonomialSum.number(other)
        return MonomialSum.of(
            (_monomial({s: dict(m).get(s, 0) + dict(n).get(s, 0) for s, _ in (*m, *n)}), f * g)
            for m, f in self.terms
            for n, g in other.terms
        )

    __rmul__ = __mul__

    def __pow__(self, power: int) -> MonomialSum:
        """Return any power of a monomial, or a non-negative power of a sum."""
        if len(self.terms) == 1:
            ((monomial, factor),) = self.terms
            return MonomialSum.of([(_monomial({s: p * power for s, p in monomial}), factor**power)])
        if power < 0:
            raise InputError(f"only a monomial has a power {power}; found {self}")
        result = MonomialSum.number(1)
        for _ in range(power):
            result = result * self
        return result

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols in alphabetical order."""
        return tuple(sorted({symbol for monomial, _ in self.terms for symbol, _ in monomial}))

    def at(self, values: Mapping[str, int | Fraction]) -> int | Fraction:
        """Return the value for given values of all symbols; an int if it is whole."""
        missing = [symbol for symbol in self.symbols if symbol not in values]
        if missing:
            raise InputError(f"the count {self} needs a value for {', '.join(missing)}")
        total = Fraction(0)
        for monomial, factor in self.terms:
            for symbol, power in monomial:
                factor *= Fraction(values[symbol]) ** power
            total += factor
        return int(total) if total.denominator == 1 else total

    def __str__(self) -> str:
        """Return the terms, highest degree first."""
        ordered = sorted(self.terms, key=lambda t: (-sum(p for _, p in t[0]), t[0]))
        return " + ".join(_written(monomial, factor) for monomial, factor in ordered) or "0"


def _written(monomial: Monomial, factor: Fraction) -> str:
    words = [symbol if power == 1 else f"{symbol}^{power}" for symbol, power in monomial]
    if factor != 1 or not words:
        words.insert(0, str(factor))
    return " ".join(words)
