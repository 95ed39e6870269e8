"""The second derivative by seven calls of the first passes: three of forward, four of backward.

z is linear in x, in y and in w, so that a direction takes the place of an operand. A path without weights is constant
in w, and is left out where ggw stands for w. `Engine.double_backward` does the same in one pass.
"""

from __future__ import annotations

import numpy as np

from trnqc.cg.cpu.engine import Engine, engine_for
from trnqc.cg.torch.handle import problem_of, text_of, weighted_part


def double_backward(
    engine: Engine,
    x: np.ndarray,
    y: np.ndarray,
    w: np.ndarray,
    gz: np.ndarray,
    ggx: np.ndarray,
    ggy: np.ndarray,
    ggw: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """(gx, gy, gw, ggz), as `Engine.double_backward` has them."""
    weighted = engine
    if not all(path.has_weight for path in engine.problem.instructions):
        linear = problem_of(weighted_part(text_of(engine.problem)))
        weighted = engine_for(linear, engine.dtype, engine.threads)
    ggz = engine.forward(ggx, y, w) + engine.forward(x, ggy, w) + weighted.forward(x, y, ggw)
    _, y_x, w_x = engine.backward(ggx, y, w, gz)
    x_y, _, w_y = engine.backward(x, ggy, w, gz)
    x_w, y_w, _ = weighted.backward(x, y, ggw, gz)
    return x_y + x_w, y_x + y_w, w_x + w_y, ggz
