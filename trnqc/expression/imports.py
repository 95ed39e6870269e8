"""Equations that p†q and Wick&d derive, as programs.

    pdaggerq   strings of p†q (N. C. Rubin and A. E. DePrince III, Mol. Phys. 119, e1954709 (2021))
    wickd      equations of Wick&d (F. A. Evangelista, J. Chem. Phys. 157, 064111 (2022))

Both write tensors over spin orbitals. The blocks of a tensor get names of their own, by the spaces of their indices,
such as f_ov, g_oovv = <ij||ab> or T_oovv. Neither package is imported: lists of words, and objects that print as
equations, are enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import groupby

from trnqc.errors import ExpressionError
from trnqc.expression.program import Program
from trnqc.expression.text import parse

OCCUPIED, VIRTUAL = "ijklmno", "abcdefgh"
# The names of p†q for amplitudes and their counterparts on the left. Each has one order of spaces, so one block.
AMPLITUDES = re.compile(r"[trlsmu]\d+")
_NUMBER = re.compile(r"[-+]?\d*\.?\d+([eE][-+]?\d+)?")
_INTEGRAL = re.compile(r"<([^<>|]+)\|\|([^<>|]+)>")
_PERMUTATION = re.compile(r"P\((\w+),(\w+)\)")
_FUNCTION = re.compile(r"([A-Za-z]\w*)(?:\(([^()]*)\))?")
_UPPER_LOWER = re.compile(r"([A-Za-z]\w*)\^\{([^{}]*)\}_\{([^{}]*)\}")
_EQUATION = re.compile(
    rf"({_UPPER_LOWER.pattern})\s*\+=\s*([-+])?\s*(\d+(?:/\d+)?)?((?:\s*{_UPPER_LOWER.pattern})*)\s*"
)


def pdaggerq(
    equations: Mapping[str, Iterable[Sequence[str]]], occupied: str = OCCUPIED, virtual: str = VIRTUAL
) -> Program:
    """Return the program of strings of p†q.

    Parameters
    ----------
    equations : mapping
        Target with its labels, such as "energy" or "r2[e,f,m,n]" -> the lists of words that ``strings()`` or
        ``fully_contracted_strings()`` of p†q returns.
    occupied, virtual : str
        First letters of the labels of occupied and of virtual orbitals.

    Returns
    -------
    Program
        Over the spaces o and v. Inputs are f_ov ... (and other one-electron tensors in the same way),
        g_oovv = <ij||ab> ..., and the amplitudes t1[v,o], t2[v,v,o,o] ... Integrals are declared antisymmetric in bra
        and in ket, amplitudes in adjacent axes of one space. Deltas d(i,j) of densities are those of programs.

    Raises
    ------
    ExpressionError
        If a word is not understood, as labels with spins and permutations of several pairs.

    Examples
    --------
    >>> print(pdaggerq({"energy": [["+1.000", "f(i,a)", "t1(a,i)"], ["+0.250", "<i,j||b,a>", "t2(b,a,i,j)"]]}))
    energy = f_ov[i,a] * t1[a,i] + 1/4 * g_oovv[i,j,b,a] * t2[b,a,i,j]
    """
    tables = _Tables(dict.fromkeys(occupied, "o") | dict.fromkeys(virtual, "v"))
    statements = []
    for target, terms in equations.items():
        tables.spaces_of(_labels(target.partition("[")[2].rstrip("]")))
        lines = [_pdaggerq_term(tables, words) for words in terms]
        if not lines:
            raise ExpressionError(f"the equation of {target} has no terms")
        statements.append(f"{target} = " + "\n    ".join(lines).removeprefix("+ "))
    return parse(tables.declarations() + "\n".join(statements))


def wickd(equations: Iterable[object], antisymmetrise: bool = True) -> Program:
    """Return the program of equations of Wick&d.

    Parameters
    ----------
    equations : iterable
        Equations of ``Expression.to_manybody_equation``, or their text, such as
        ``R^{o0}_{v0} += F^{v1}_{v0} T^{o0}_{v1}``. Those of one target are added.
    antisymmetrise : bool
        Whether targets are antisymmetrised in their upper and in their lower indices, which Wick&d leaves to the code
        that evaluates its equations.

    Returns
    -------
    Program
        Over the spaces that the letters of the indices name, with tensors such as T_oovv, whose upper indices come
        first. Inputs are declared antisymmetric in adjacent axes of one space that are both upper or both lower.

    Raises
    ------
    ExpressionError
        If an equation is not understood.

    Examples
    --------
    >>> print(wickd(["R^{}_{} += 1/2 F^{v0}_{o0} T^{o0}_{v0}"]))
    R = 1/2 * F_vo[v0,o0] * T_ov[o0,v0]
    """
    tables = _Tables({})
    targets: dict[str, tuple[list[str], list[str], list[str]]] = {}
    for equation in equations:
        name, upper, lower, term = _wickd_term(tables, str(equation).strip())
        targets.setdefault(name, (upper, lower, []))[2].append(term)
    statements = []
    for name, (upper, lower, terms) in targets.items():
        total, labels = "\n    ".join(terms).removeprefix("+ "), ",".join([*upper, *lower])
        target = f"{name}[{labels}]" if labels else name
        runs = [run for group in (upper, lower) for run in _runs(group) if len(run) > 1]
        if runs and antisymmetrise:
            # The sum is permuted once, not each of its terms.
            operators = " * ".join(f"P({'/'.join(run)})" for run in runs)
            statements += [f"sum_{name}[{labels}] = {total}", f"{target} = {operators} * sum_{name}[{labels}]"]
        else:
            statements.append(f"{target} = {total}")
    return parse(tables.declarations() + "\n".join(statements))


def _wickd_term(tables: _Tables, equation: str) -> tuple[str, list[str], list[str], str]:
    """Return the name of the target, its upper and lower labels, and the term with its sign."""
    match = _EQUATION.fullmatch(equation)
    if match is None:
        raise ExpressionError(f"expected an equation such as R^{{o0}}_{{v0}} += F^{{o0}}_{{v0}}; found {equation}")
    _, name, upper, lower, sign, number, factors, *_ = match.groups()
    # Every equation numbers the labels of its target anew, so they are named by their places.
    places = {
        old: f"{old[0]}{where}{k}"
        for where, text in (("upper", upper), ("lower", lower))
        for k, old in enumerate(_labels(text))
    }
    first, second = ([places[label] for label in _labels(text)] for text in (upper, lower))
    words = [number or "1"]
    for factor, *both in _UPPER_LOWER.findall(factors):
        groups = [[places.get(label, label) for label in _labels(text)] for text in both]
        words.append(tables.block(factor, groups, by_spaces=True))
    return tables.name(name, [first, second]), first, second, f"{sign or '+'} " + " * ".join(words)


def _pdaggerq_term(tables: _Tables, words: Sequence[str]) -> str:
    """Return one term with its sign. The first word is the factor, as a decimal number."""
    if not words or not _NUMBER.fullmatch(words[0].replace(" ", "")):
        raise ExpressionError(f"expected a term that begins with a number, such as '-0.500'; found {list(words)}")
    if not 1e-9 < abs(float(words[0].replace(" ", ""))) < 1e9:  # Powers such as 1e400000 would fill the memory.
        raise ExpressionError(f"expected a factor between 1e-9 and 1e9; found {words[0]}")
    number, digits = Fraction(words[0].replace(" ", "")), len(words[0].partition(".")[2])
    factor = number.limit_denominator(1000)
    if abs(factor - number) > Fraction(1, 10**digits):
        raise ExpressionError(f"expected a fraction with a small denominator as factor; found {words[0]}")
    tensors = [_pdaggerq_word(tables, word.replace(" ", "")) for word in words[1:]]
    return f"{'-' if factor < 0 else '+'} " + " * ".join([str(abs(factor)), *tensors])


def _pdaggerq_word(tables: _Tables, word: str) -> str:
    if _PERMUTATION.fullmatch(word):
        return word
    if match := _INTEGRAL.fullmatch(word):
        return tables.block("g", [_labels(match[1]), _labels(match[2])], by_spaces=True)
    match = _FUNCTION.fullmatch(word)
    if match is None or match[1].startswith("P"):
        raise ExpressionError(f"expected P(i,j), <i,j||a,b> or a tensor such as t2(a,b,i,j); found {word!r}")
    labels = _labels(match[2] or "")
    if match[1] == "d" and len(labels) == 2:
        if len(set(tables.spaces_of(labels))) > 1:
            raise ExpressionError(f"both labels of a delta run over one space; found {word!r}")
        return f"delta({','.join(labels)})"
    if AMPLITUDES.fullmatch(match[1]):
        return tables.block(match[1], [labels], by_spaces=False)
    return tables.block(match[1], [[label] for label in labels], by_spaces=True)


class _Tables:
    """The labels and tensors that were read.

    `first_letters` has the space of each first letter of a label; without any, the letter itself is the space.
    """

    def __init__(self, first_letters: Mapping[str, str]) -> None:
        self.first_letters = first_letters
        self.labels: dict[str, str] = {}
        self.tensors: dict[str, tuple[list[str], ...]] = {}

    def spaces_of(self, labels: Sequence[str]) -> str:
        """Return the spaces of labels, which are entered."""
        for label in labels:
            space = self.first_letters.get(label[:1]) if self.first_letters else label[:1]
            if not space or not label.isalnum():
                raise ExpressionError(f"{label!r} is the label of no space; known first letters: {self._known()}")
            self.labels[label] = space
        return "".join(self.labels[label] for label in labels)

    def name(self, tensor: str, groups: Sequence[Sequence[str]]) -> str:
        """Return the name of the block of a tensor."""
        spaces = "".join(self.spaces_of(group) for group in groups)
        return f"{tensor}_{spaces}" if spaces else tensor

    def block(self, tensor: str, groups: Sequence[Sequence[str]], by_spaces: bool) -> str:
        """Return a tensor at labels in the form of a program; `groups` may be antisymmetric within."""
        name = self.name(tensor, groups) if by_spaces else tensor
        spaces = [list(self.spaces_of(group)) for group in groups]
        if self.tensors.setdefault(name, tuple(spaces)) != tuple(spaces):
            raise ExpressionError(f"{name} has indices of the spaces {self.tensors[name]} and of {spaces}")
        labels = ",".join(label for group in groups for label in group)
        return f"{name}[{labels}]" if labels else name

    def declarations(self) -> str:
        """Return the declarations of all spaces, labels and tensors."""
        spaces = sorted(set(self.labels.values()) | set("ov" if self.first_letters else ""))
        lines = [f"space {space}" for space in spaces]
        for space in spaces:
            labels = [label for label, own in self.labels.items() if own == space]
            lines += [f"index {' '.join(labels)} : {space}"] if labels else []
        for name, groups in self.tensors.items():
            words, place = [f"tensor {name}[{','.join(x for group in groups for x in group)}]"], 0
            for group in groups:
                for run in _runs(group):
                    if len(run) > 1:
                        words.append(f"antisymmetric({','.join(map(str, range(place, place + len(run))))})")
                    place += len(run)
            lines.append(" ".join(words))
        return "\n".join(lines) + "\n"

    def _known(self) -> str:
        return " ".join(self.first_letters)


def _labels(text: str) -> list[str]:
    return [label.strip() for label in text.split(",") if label.strip()]


def _runs(labels: Sequence[str]) -> list[list[str]]:
    """Return adjacent labels of one space together."""
    return [list(run) for _, run in groupby(labels, key=lambda label: label[0])]
