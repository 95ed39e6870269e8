"""The text form of a program and its parser.

    space o = 5 + 5            # extent, or the extents of its blocks; may be left open
    space v
    index i j k l : o
    index a b c d : v
    tensor t[v,v,o,o] antisymmetric(0,1) antisymmetric(2,3) conserving(0,1|2,3)
    function g[v,v,v,v] cost 1000
    R[a,b,i,j]  = 1/2 * g[a,b,c,d] * t[c,d,i,j]
    R[a,b,i,j] += P(i,j) * (t[a,c,i,k] * w[k,b,c,j] - t[a,c,k,i] * w[k,b,c,j]) / d[a,b,i,j]

P(i,j) subtracts from the product in which it stands the same product with i and j exchanged. P(i/jk) is
1 - P(ij) - P(ik), which antisymmetrises a product that is antisymmetric in j and k. There may be any number of groups,
and labels of several letters are separated by commas. A line that begins with an operator continues the previous line.
exp(x[i]), with log, sqrt, abs, sign, tanh, sin and cos, is a tensor of the function of each element, which keeps all
indices of its argument: exp(-e[i]*t[k]) has the indices i and k. All terms of an argument have the same indices.
delta(i,j), or δ(i,j), is 1 where i and j are equal and 0 elsewhere.
symmetric(0,1)(2,3) exchanges both pairs of axes at once: t_efij = t_feji.
blocks(00 11) lists the blocks of a tensor that may differ from zero. conserving(0,1|2,3) allows those blocks whose
numbers have equal sums over both groups of axes.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace
from fractions import Fraction

from trnqc.errors import ExpressionError
from trnqc.expression.functions import FUNCTIONS, application
from trnqc.expression.program import Program, TensorStatement, check_factor, check_target
from trnqc.expression.spaces import Space
from trnqc.expression.symmetry import Exchange, Permutations, Symmetry, permutations_of
from trnqc.expression.terms import Factor, Sum, Tensor, Term, identity
from trnqc.expression.tokens import Token, error_at, logical_lines

KEYWORDS = ("space", "index", "tensor", "function")
DELTAS = ("delta", "δ")


def parse(text: str) -> Program:
    """Parse the text of a program.

    Parameters
    ----------
    text : str
        Declarations and statements in the form that this module's docstring shows.

    Raises
    ------
    ExpressionError
        If the text is not a program. The message shows the line and the position.

    Examples
    --------
    >>> lines = ["space n = 3", "index i j : n", "tensor A[n,n]", "square = A[i,j] * A[i,j]"]
    >>> print(parse("\\n".join(lines)))
    square = A[i,j] * A[i,j]
    """
    return _Parser(text).program()


class _Parser:
    """A recursive-descent parser over the tokens of one text, with the declarations read so far."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.tokens: list[Token] = []
        self.position = 0
        self.spaces: dict[str, Space] = {}
        self.labels: dict[str, str] = {}
        self.tensors: dict[str, Tensor] = {}
        self.shapes: dict[str, tuple[str, ...]] = {}
        self.exchanged: list[Token] = []
        self.statements: list[TensorStatement] = []
        # How often statements have changed a tensor, and the tensors of functions that stand in several places.
        self.versions: dict[str, int] = {}
        self.applied: dict[object, str] = {}

    def program(self) -> Program:
        for tokens in logical_lines(self.lines):
            self.tokens, self.position = tokens, 0
            if self.here.text in KEYWORDS and tokens[1].kind == "name":
                getattr(self, f"_{self.take().text}")()
            else:
                statement = self._statement()
                self.statements.append(statement)
                name = statement.target.tensor
                self.versions[name] = self.versions.get(name, 0) + 1
            if self.here.kind != "end":
                raise self.error(f"expected the end of the line; found {self.here.text!r}", self.here)
        tensors = tuple(self.tensors.values())
        return Program(tuple(self.spaces.values()), tuple(self.labels.items()), tensors, tuple(self.statements))

    @property
    def here(self) -> Token:
        return self.tokens[self.position]

    def take(self, *texts: str, kind: str = "") -> Token:
        token = self.here
        if (texts and token.text not in texts) or (kind and token.kind != kind):
            wanted = " or ".join(map(repr, texts)) or f"a {kind}"
            raise self.error(f"expected {wanted}; found {token.text!r}", token)
        self.position += 1
        return token

    def skip(self, text: str) -> bool:
        """Skip the next token if it is `text`, and return whether it was."""
        matches = self.here.kind != "end" and self.here.text == text
        self.position += matches
        return matches

    def error(self, message: str, token: Token) -> ExpressionError:
        """Return the error that points at a token."""
        return error_at(message, self.lines[token.line], token.column, token.line + 1)

    def _undeclared(self, token: Token, taken: Container[str]) -> str:
        if token.text in taken:
            raise self.error(f"{token.text} is declared twice", token)
        return token.text

    # Declarations.

    def _space(self) -> None:
        name = self.take(kind="name")
        self._undeclared(name, self.spaces)
        parts = []
        if self.skip("="):
            parts = [self._whole()]
            while self.skip("+"):
                parts.append(self._whole())
        blocks = tuple(parts) if len(parts) > 1 else ()
        self.spaces[name.text] = Space(name.text, sum(parts) if parts else None, blocks)

    def _whole(self) -> int:
        token = self.take(kind="number")
        if not token.text.isdigit():
            raise self.error(f"expected a whole number; found {token.text}", token)
        return int(token.text)

    def _index(self) -> None:
        names = [self.take(kind="name")]
        while not self.skip(":"):
            names.append(self.take(kind="name"))
        space = self._known_space()
        for name in names:
            self.labels[self._undeclared(name, self.labels)] = space.name

    def _known_space(self) -> Space:
        token = self.take(kind="name")
        if token.text not in self.spaces:
            raise self.error(f"space {token.text} is not declared", token)
        return self.spaces[token.text]

    def _tensor(self, cost: int = 0) -> None:
        name = self.take(kind="name")
        self._undeclared(name, self.shapes)
        spaces: list[Space] = []
        if self.skip("["):
            spaces = [] if self.here.text == "]" else [self._known_space()]
            while self.skip(","):
                spaces.append(self._known_space())
            self.take("]")
        tensor = Tensor(name.text, tuple(spaces), cost=cost)
        while self.here.kind == "name":
            tensor = self._property(tensor)
        self.tensors[name.text] = tensor
        self.shapes[name.text] = tuple(space.name for space in spaces)

    _function = _tensor

    def _property(self, tensor: Tensor) -> Tensor:
        word = self.take("symmetric", "antisymmetric", "conserving", "blocks", "cost")
        try:
            if word.text == "cost":
                return replace(tensor, cost=self._whole())
            if word.text == "blocks":
                return replace(tensor, blocks=self._blocks())
            if word.text == "conserving":
                return replace(tensor, conserving=(self._axes("(", "|"), self._axes_after_bar()))
            sign = 1 if word.text == "symmetric" else -1
            groups = [self._axes("(", ")")]
            while self.here.text == "(":
                groups.append(self._axes("(", ")"))
            if len(groups) == 1:
                return replace(tensor, symmetries=(*tensor.symmetries, Symmetry(groups[0], sign)))
            return replace(tensor, exchanges=(*tensor.exchanges, Exchange(tuple(groups), sign)))  # type: ignore[arg-type]
        except ExpressionError as error:
            if "\n" in str(error):
                raise
            raise self.error(str(error), word) from None

    def _axes(self, opening: str, closing: str) -> tuple[int, ...]:
        self.take(opening)
        axes = [self._whole()]
        while self.skip(","):
            axes.append(self._whole())
        self.take(closing)
        return tuple(axes)

    def _blocks(self) -> frozenset[tuple[int, ...]]:
        self.take("(")
        numbers = []
        while not self.skip(")"):
            numbers.append(tuple(int(digit) for digit in self.take(kind="number").text))
        return frozenset(numbers)

    def _axes_after_bar(self) -> tuple[int, ...]:
        self.position -= 1
        return self._axes("|", ")")

    # Statements.

    def _statement(self) -> TensorStatement:
        target, places = self._reference()
        sign = self.take("=", "+=", "-=")
        self.exchanged = []
        value = self._sum()
        if sign.text == "-=":
            value = -value
        for token in self.exchanged:
            if token.text not in target.labels:
                raise self.error(f"P exchanges indices of the target; {token.text} is summed", token)
        statement = TensorStatement(target, value.terms, accumulate=sign.text != "=")
        spaces = tuple(self.labels.get(label, "") for label in target.labels)
        self._point(places, lambda: check_target(statement, self.shapes))
        self._point(places, lambda: check_factor(target, self.labels, {target.tensor: spaces} | self.shapes))
        self.shapes.setdefault(target.tensor, spaces)
        return statement

    def _point(self, places: list[Token], check: Callable[[], None]) -> None:
        """Run a check, whose error is reported at the token of the axis that it names, else at the tensor."""
        try:
            check()
        except ExpressionError as error:
            place = places[0] if error.axis is None else places[1 + error.axis]
            raise self.error(str(error), place) from None

    def _reference(self) -> tuple[Factor, list[Token]]:
        """Return a tensor at indices, and the tokens of its name and its labels."""
        places = [self.take(kind="name")]
        if self.skip("[") and not self.skip("]"):
            places.append(self.take(kind="name"))
            while self.skip(","):
                places.append(self.take(kind="name"))
            self.take("]")
        return Factor(places[0].text, tuple(token.text for token in places[1:])), places

    def _sum(self) -> Sum:
        total = -self._product() if self.skip("-") else self._product()
        while self.here.text in ("+", "-"):
            total = total + self._product() if self.take().text == "+" else total - self._product()
        return total

    def _product(self) -> Sum:
        swaps: list[Permutations] = []
        value = self._atom(swaps)
        while self.here.text in ("*", "/"):
            sign = self.take()
            other = self._atom(swaps)
            try:
                value = value * other if sign.text == "*" else value / other
            except ExpressionError as error:
                raise self.error(str(error), sign) from None
        for permutations in swaps:
            original = value
            for sign_of, names in permutations:
                permuted = Sum(tuple(term.renamed(names) for term in original.terms))
                value = value + permuted if sign_of > 0 else value - permuted
        return value

    def _antisymmetriser(self) -> Permutations:
        """Read P(i,j) or P(i/jk) and return its permutations but the identity."""
        name = self.take()
        self.take("(")
        groups = [self._labels()]
        has_groups = self.here.text == "/"
        while self.skip("/"):
            groups.append(self._labels())
        self.take(")")
        tokens = [token for group in groups for token in group]
        labels = [token.text for token in tokens]
        if len(set(labels)) < len(labels) or len(labels) < 2 or (not has_groups and len(labels) > 2):
            raise self.error("P takes two labels, P(i,j), or groups of different labels, P(i/jk)", name)
        self.exchanged += tokens
        return permutations_of([[t.text for t in group] for group in (groups if has_groups else [[t] for t in tokens])])

    def _labels(self) -> list[Token]:
        """Read labels with commas between them, or in one word of labels of one letter."""
        tokens = [self.take(kind="name")]
        while self.skip(","):
            tokens.append(self.take(kind="name"))
        word = tokens[0]
        if len(tokens) == 1 and word.text not in self.labels:
            return [replace(word, text=letter, column=word.column + k) for k, letter in enumerate(word.text)]
        return tokens

    def _atom(self, swaps: list[Permutations]) -> Sum:
        if self.here.kind == "number":
            return Sum((Term(Fraction(self.take().text), ()),))
        if self.skip("("):
            value = self._sum()
            self.take(")")
            return value
        if self.here.text == "P" and self.tokens[self.position + 1].text == "(":
            swaps.append(self._antisymmetriser())
            return Sum((Term(Fraction(1), ()),))
        if self.here.kind == "name" and self.tokens[self.position + 1].text == "(":
            if self.here.text in DELTAS and self.here.text not in self.shapes:
                return self._delta()
            return self._applied()
        factor, places = self._reference()
        self._point(places, lambda: check_factor(factor, self.labels, self.shapes))
        return Sum((Term(Fraction(1), (factor,)),))

    def _applied(self) -> Sum:
        """Read a function of a sum, whose value becomes a tensor that is computed before this statement."""
        name = self.take()
        if name.text not in FUNCTIONS or name.text in self.shapes:
            raise self._call(name)
        self.take("(")
        terms = self._sum().terms
        self.take(")")
        if constant := [term for term in terms if not term.factors]:
            raise self.error(f"{name.text} takes tensors; found the number {constant[0]}: multiply it by ones", name)
        statement = application(name.text, terms, set(self.shapes))
        labels = statement.target.labels
        for term in terms:
            if missing := [label for label in labels if label not in term.labels]:
                found = f"index {missing[0]} is missing in {term}"
                raise self.error(f"all terms in {name.text}(..) have the same indices; {found}", name)
        # The same function of the same values is computed once, whatever its labels are called.
        numbers = {label: f"{number}:{self.labels[label]}" for number, label in enumerate(labels)}
        read = tuple(self.versions.get(factor.tensor, 0) for term in terms for factor in term.factors)
        key = name.text, tuple(term.renamed(numbers) for term in terms), read
        if key not in self.applied:
            self.applied[key] = statement.target.tensor
            self.shapes[statement.target.tensor] = tuple(self.labels[label] for label in labels)
            self.statements.append(statement)
        return Sum((Term(Fraction(1), (Factor(self.applied[key], labels),)),))

    def _delta(self) -> Sum:
        """Read delta(i,j), the identity over the space of both labels."""
        name = self.take()
        self.take("(")
        labels = [self.take(kind="name")]
        self.take(",")
        labels.append(self.take(kind="name"))
        self.take(")")
        first, second = (label.text for label in labels)
        for label in labels:
            if label.text not in self.labels:
                raise self.error(f"index {label.text} of {name.text}({first},{second}) is not declared", label)
        spaces = [self.labels[label.text] for label in labels]
        if spaces[0] != spaces[1]:
            raise self.error(
                f"both indices of {name.text}({first},{second}) run over one space; found {first} over {spaces[0]} and "
                f"{second} over {spaces[1]}",
                labels[1],
            )
        tensor = identity(self.spaces[spaces[0]])
        self.tensors[tensor.name], self.shapes[tensor.name] = tensor, (spaces[0], spaces[0])
        return Sum((Term(Fraction(1), (Factor(tensor.name, (first, second)),)),))

    def _call(self, name: Token) -> ExpressionError:
        """Return the error of a name before a parenthesis."""
        if name.text in self.shapes:
            return self.error(f"indices of {name.text} stand in brackets: {name.text}[..]; found {name.text}(", name)
        return self.error(
            f"the functions of a program are {', '.join(FUNCTIONS)}; found {name.text}(..): compute {name.text} of the "
            "array before, declare the result as a tensor and pass it as an input",
            name,
        )
