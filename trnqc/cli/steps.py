"""The steps of a geometry optimisation as they come: a line each, and the trajectory."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from trnqc.interfaces.extxyz import write_extxyz
from trnqc.interfaces.optimization import GeometryStep


class StepLog:
    """Prints each step, and writes all of them to a trajectory if there is one."""

    def __init__(self, console: Console, quiet: bool, trajectory: Path | None) -> None:
        self.console, self.quiet, self.trajectory = console, quiet, trajectory
        self.steps: list[GeometryStep] = []

    def __call__(self, number: int, step: GeometryStep) -> None:
        """Take the step of a number, which counts from 1."""
        change = step.energy - self.steps[-1].energy if self.steps else 0.0
        self.steps.append(step)
        if not self.quiet:
            self.console.print(
                f"step {number:3d}  E = {step.energy:.10f}  change {change:+.2e}  "
                f"largest force {step.largest_force:.2e}",
                highlight=False,
            )
        if self.trajectory:
            write_extxyz(self.trajectory, [(s.geometry, s.energy, s.gradient) for s in self.steps])
