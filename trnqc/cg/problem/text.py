"""Conversion of problems to text and from text.

The operators of torch.library take a problem as text, because traced and exported programs store their arguments and
are loaded by other processes.
"""

from __future__ import annotations

import functools
import json

from trnqc.cg.problem.problem import TPProblem, normalised
from trnqc.errors import InputError

IRREPS = ("irreps_in1", "irreps_in2", "irreps_out")
OPTIONS = ("shared_weights", "layout", "dtype", "label")


def text_of(problem: TPProblem) -> str:
    """Return the problem as JSON with exact path weights, without `internal_weights`, which concerns modules only."""
    paths = [[i.i_in1, i.i_in2, i.i_out, i.connection_mode, i.has_weight, i.path_weight] for i in problem.instructions]
    fields = {name: str(getattr(problem, name)) for name in IRREPS} | {"instructions": paths}
    return json.dumps(fields | {name: getattr(problem, name) for name in OPTIONS}, separators=(",", ":"))


@functools.lru_cache(maxsize=1024)
def problem_of(text: str) -> TPProblem:
    """Return the problem from text that `text_of` wrote. Raises InputError for any other text."""
    try:
        fields = json.loads(text)
        irreps = [fields[name] for name in IRREPS]
        return normalised(irreps, fields["instructions"], **{name: fields[name] for name in OPTIONS})
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise InputError(f"expected a tensor product as text_of writes it; found {text[:80]!r} ({error!r})") from error


@functools.lru_cache(maxsize=1024)
def weighted_part(text: str) -> str:
    """Return the text of the problem's `TPProblem.weighted_part`."""
    return text_of(problem_of(text).weighted_part())
