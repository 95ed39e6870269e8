"""Derivatives of programs, as programs: sums of products of the same tensors.

    gradient   reverse mode: the derivatives of a scalar with respect to inputs
    tangent    forward mode: the derivatives of targets along a direction of inputs

Statements are differentiated one by one, so that derivatives share the intermediates of the program and have their own:
the gradient needs a small multiple of the work of the program, however many inputs there are. Derivatives are those of
sums of products: complex numbers are not conjugated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from trnqc.errors import ExpressionError
from trnqc.expression.functions import chain_rule, with_derivatives
from trnqc.expression.program import Program, TensorStatement
from trnqc.expression.reverse import Reverse, product_rule
from trnqc.expression.single_assignment import single_assignment, without_unread
from trnqc.expression.terms import Factor, Tensor, Term


def gradient(program: Program, of: str, wrt: str | Sequence[str], keep: Sequence[str] = ()) -> Program:
    """Return the program that computes the derivatives of a scalar with respect to inputs.

    Parameters
    ----------
    program : Program
        Statements of any form, with divisions, additions to targets and tensors that change.
    of : str
        A target without indices. To differentiate another target, contract it with a tensor first.
    wrt : str or sequence of str
        Inputs. Of an input that the program changes, the value at the start is meant.
    keep : sequence of str
        Targets of the program that the result computes too, such as `of`.

    Returns
    -------
    Program
        Its targets ``dE_dX``, with the shape and the symmetry of X, are the derivatives of E with respect to the inputs
        X. Intermediates have derivatives of the same form.

        The derivative G of an (anti)symmetric tensor X is the one for which a change dX of that symmetry changes E by
        the sum of G * dX over all elements. It is the mean over the permutations of the derivative with respect to
        independent elements: of ``1/4 * g[a,b,i,j] * x[a,b,i,j]`` it is g/4. Where only the elements with a < b and
        i < j are variables, their derivatives are 4 G. Blocks that may not differ from zero are treated as variables.

    Raises
    ------
    ExpressionError
        If `of` is no scalar or does not depend on an input, or if the derivative is no sum of products of tensors: that
        of a diagonal ``X[a,a]`` or of a sum ``X[a,b] * y[b]`` over a label of X alone is not, nor that of ``x`` itself.

    Examples
    --------
    >>> from trnqc.expression.text import parse
    >>> lines = ["space n = 3", "index i j : n", "tensor A[n,n] symmetric(0,1)", "tensor b[n]"]
    >>> program = parse("\\n".join([*lines, "y[i] = A[i,j] * b[j]", "E = y[i] * y[i]"]))
    >>> print(gradient(program, "E", "b"))
    y[i] = A[i,j] * b[j]
    dE_dy[i] = 2 * y[i]
    dE_db[j] = A[i,j] * dE_dy[i]
    """
    straight, last, wanted = _prepared(program, wrt, keep)
    if of not in program.targets or (labels := _labels(straight, last[of])):
        found = f"{of}[{','.join(labels)}]" if of in program.targets else f"{of}, which is no target"
        raise ExpressionError(f"the gradient is that of a target without indices; found {found}")
    reverse = Reverse(straight, last[of], f"d{of}_d", wanted)
    for statement in reversed(straight.statements):
        reverse.target(statement.target)
        reverse.factors(statement)
    for name in wanted:
        reverse.input(name)
    outputs = [*keep, *(reverse.prefix + name for name in wanted)]
    return _extended(straight, reverse.labels, (), reverse.statements, outputs)


def tangent(program: Program, of: str | Sequence[str], wrt: str | Sequence[str], keep: Sequence[str] = ()) -> Program:
    """Return the program that computes the change of targets with a change of inputs, in first order.

    Parameters
    ----------
    program, keep
        As of `gradient`.
    of, wrt : str or sequence of str
        Targets and inputs.

    Returns
    -------
    Program
        Its inputs ``dX``, declared as the inputs X in `wrt`, are a direction. Its targets ``dR`` are the Jacobian of
        the targets R in `of`, applied to it. Intermediates have changes of the same form.

    Raises
    ------
    ExpressionError
        If a target in `of` does not depend on the inputs in `wrt`.

    Examples
    --------
    >>> from trnqc.expression.text import parse
    >>> lines = ["space n = 3", "index i j : n", "tensor A[n,n]", "tensor b[n]", "y[i] = A[i,j] * b[j] / b[i]"]
    >>> print(tangent(parse("\\n".join(lines)), "y", "b"))
    dy[i] = A[i,j] * db[j] / b[i] - A[i,j] * b[j] * db[i] / b[i] / b[i]
    """
    straight, last, wanted = _prepared(program, wrt, keep)
    targets = (of,) if isinstance(of, str) else tuple(of)
    if wrong := [name for name in targets if name not in program.targets]:
        raise ExpressionError(f"{wrong[0]} is no target; targets are {', '.join(program.targets)}")
    active, statements = set(wanted), []
    for statement in straight.statements:
        terms: list[Term] = []
        for term in statement.terms:
            for place, factor in enumerate(term.factors):
                if factor.tensor in active:
                    change = Term(Fraction(1), (Factor(f"d{factor.tensor}", factor.labels),))
                    terms += (
                        chain_rule(straight, statement, change)
                        if statement.function
                        else [product_rule(term, place, change)]
                    )
        if terms:
            active.add(statement.target.tensor)
            target = replace(statement.target, tensor=f"d{statement.target.tensor}")
            statements.append(TensorStatement(target, tuple(terms)))
    if wrong := [name for name in targets if last[name] not in active]:
        raise ExpressionError(f"{wrong[0]} does not depend on {', '.join(wanted)}")
    directions = [replace(t, name=f"d{t.name}", cost=0) for t in straight.tensors if t.name in wanted]
    outputs = [*keep, *(f"d{last[name]}" for name in targets)]
    return _extended(straight, dict(straight.labels), directions, statements, outputs)


def _prepared(
    program: Program, wrt: str | Sequence[str], keep: Sequence[str]
) -> tuple[Program, dict[str, str], tuple[str, ...]]:
    """Return the program with single assignments, the last name of each tensor, and the names of the inputs."""
    wanted = (wrt,) if isinstance(wrt, str) else tuple(dict.fromkeys(wrt))
    if not wanted:
        raise ExpressionError("derivatives are with respect to one input or more; found none")
    straight, last = single_assignment(program)
    straight = with_derivatives(straight)
    if wrong := [name for name in wanted if name not in straight.inputs]:
        raise ExpressionError(f"{wrong[0]} is no input of the program; inputs are {', '.join(straight.inputs)}")
    if wrong := [name for name in keep if name not in straight.targets]:
        raise ExpressionError(f"{wrong[0]} is no target that can be kept; such are {', '.join(straight.targets)}")
    return straight, last, wanted


def _extended(
    program: Program,
    labels: Mapping[str, str],
    directions: Sequence[Tensor],
    statements: Sequence[TensorStatement],
    outputs: Sequence[str],
) -> Program:
    """Return the program with further tensors and statements, without what no output depends on."""
    taken = {*(tensor.name for tensor in program.tensors), *program.targets}
    names = [*(tensor.name for tensor in directions), *(statement.target.tensor for statement in statements)]
    if clash := [name for name in names if name in taken]:
        raise ExpressionError(f"{clash[0]} is the name of a derivative; give the tensor of this name another one")
    whole = replace(
        program,
        labels=tuple(labels.items()),
        tensors=(*program.tensors, *directions),
        statements=(*program.statements, *statements),
    )
    return without_unread(whole, outputs)


def _labels(program: Program, target: str) -> tuple[str, ...]:
    """Return the labels of a target of a program of single assignments."""
    return next(s.target.labels for s in program.statements if s.target.tensor == target)
