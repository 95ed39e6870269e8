"""Expected results of programs: every term is computed by itself with numpy.einsum."""

from __future__ import annotations

import numpy as np

from trnqc.expression.program import Program


def antisymmetric(x: np.ndarray) -> np.ndarray:
    """Odd under exchange of the first two axes and of the last two."""
    x = x - x.swapaxes(0, 1)
    return x - x.swapaxes(2, 3)


def term_by_term(program: Program, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The values of all tensors after the program."""
    values = dict(arrays)
    for statement in program.statements:
        total = values[statement.target.tensor] if statement.accumulate else 0.0
        for term in statement.terms:
            letter = {label: chr(97 + k) for k, label in enumerate(term.labels)}
            inputs = ",".join("".join(letter[x] for x in factor.labels) for factor in term.factors)
            operands = [1 / values[f.tensor] if f.reciprocal else values[f.tensor] for f in term.factors]
            output = "".join(letter[x] for x in statement.target.labels)
            total = total + float(term.coefficient) * np.einsum(f"{inputs}->{output}", *operands, optimize=True)
        values[statement.target.tensor] = total
    return values
