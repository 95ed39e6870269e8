"""The results of decompositions: factors, and the course of the error."""

from __future__ import annotations

import string
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trnqc.errors import InputError
from trnqc.host.files import write_aside


@dataclass(frozen=True, eq=False)
class Course:
    """How a decomposition converged.

    Attributes
    ----------
    errors : tuple of float
        The relative error ||X - X'|| / ||X|| after each sweep.
    converged : bool
        Whether the error changed by less than the tolerance in the last sweep.
    restarts : tuple of float
        The last error from each start that was tried; that of this result is the smallest.
    seconds : float
        Wall time of all sweeps and starts, without planning.
    """

    errors: tuple[float, ...]
    converged: bool
    restarts: tuple[float, ...]
    seconds: float

    @property
    def error(self) -> float:
        """The last relative error."""
        return self.errors[-1]

    def plot(self, path: str | Path) -> None:
        """Write the errors over the sweeps, on a logarithmic scale, as a figure in the format SVG."""
        write_aside(Path(path), curve(self.errors))

    def __str__(self) -> str:
        how = "converged" if self.converged else "not converged"
        starts = f", best of {len(self.restarts)} starts" if len(self.restarts) > 1 else ""
        return f"relative error {self.error:.6e} after {len(self.errors)} sweeps ({how}{starts}), {self.seconds:.2f} s"


@dataclass(frozen=True, eq=False)
class CP(Course):
    """X[i, j, ...] = sum over r of weights[r] factors[0][i, r] factors[1][j, r] ...

    Attributes
    ----------
    weights : ndarray
        [rank].
    factors : tuple of ndarray
        [extent, rank] for each mode.
    """

    weights: np.ndarray
    factors: tuple[np.ndarray, ...]

    def to_dense(self) -> np.ndarray:
        """Return X."""
        letters = string.ascii_lowercase[: len(self.factors)]
        text = ",".join(["z", *(f"{x}z" for x in letters)]) + f"->{letters}"
        return np.asarray(np.einsum(text, self.weights, *self.factors, optimize=True))

    def normalised(self) -> CP:
        """Return the same model with columns of length one, in descending order of the weights."""
        lengths = [np.linalg.norm(factor, axis=0) for factor in self.factors]
        weights = self.weights * np.prod(lengths, axis=0)
        order = np.argsort(-abs(weights), kind="stable")
        factors = [factor / np.where(n > 0, n, 1.0) for factor, n in zip(self.factors, lengths)]
        course = (self.errors, self.converged, self.restarts, self.seconds)
        return CP(*course, weights[order], tuple(factor[:, order] for factor in factors))


@dataclass(frozen=True, eq=False)
class Tucker(Course):
    """X = core x_1 factors[0] x_2 factors[1] ..., with factors of orthonormal columns.

    Attributes
    ----------
    core : ndarray
        [rank of each mode].
    factors : tuple of ndarray
        [extent, rank] for each mode.
    """

    core: np.ndarray
    factors: tuple[np.ndarray, ...]

    def to_dense(self) -> np.ndarray:
        """Return X."""
        model = self.core
        for factor in self.factors:
            model = np.tensordot(model, factor, axes=(0, 1))
        return model


@dataclass(frozen=True, eq=False)
class TensorTrain:
    """X[i, j, ...] = product of the matrices cores[0][:, i, :] cores[1][:, j, :] ...

    Attributes
    ----------
    cores : tuple of ndarray
        [left rank, extent, right rank] for each mode; the outer ranks are 1.
    error : float
        The relative error ||X - X'|| / ||X||.
    """

    cores: tuple[np.ndarray, ...]
    error: float

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks, with the outer ones."""
        return (1, *(core.shape[2] for core in self.cores))

    def to_dense(self) -> np.ndarray:
        """Return X."""
        model = self.cores[0]
        for core in self.cores[1:]:
            model = np.tensordot(model, core, axes=(-1, 0))
        return model[0, ..., 0]


WIDTH, HEIGHT, MARGIN = 480, 280, 48


def curve(errors: tuple[float, ...]) -> str:
    """Return a curve of positive numbers over 1, 2, ... on a logarithmic scale, as SVG."""
    if not errors or not all(np.isfinite(errors)):
        raise InputError(f"a figure needs finite errors; found {errors}")
    logs = np.log10(np.maximum(errors, 1e-16))
    low, high = np.floor(logs.min()), np.ceil(logs.max())
    high = high if high > low else low + 1
    x = MARGIN + np.arange(len(logs)) / max(len(logs) - 1, 1) * (WIDTH - 2 * MARGIN)
    y = MARGIN / 2 + (high - logs) / (high - low) * (HEIGHT - 1.5 * MARGIN)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y))
    lines = []
    for power in range(int(low), int(high) + 1):
        level = MARGIN / 2 + (high - power) / (high - low) * (HEIGHT - 1.5 * MARGIN)
        lines.append(f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{level:.1f}" y2="{level:.1f}" stroke="#ddd"/>')
        lines.append(f'<text x="{MARGIN - 6}" y="{level + 4:.1f}" text-anchor="end">1e{power}</text>')
    label = f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">sweep 1 to {len(logs)}: relative error</text>'
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    path = f'<polyline points="{points}" fill="none" stroke="#1f5fa8" stroke-width="2"/>'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *lines, path, label, "</svg>\n"])
