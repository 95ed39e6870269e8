"""The jobs that the options of ``trnqc mp2`` describe.

mp2_options -> argparse -> jobs_from -> a Job for each frame of the file
"""

from __future__ import annotations

import argparse
from typing import Any

from trnqc.cli.molecule_options import check_target, positive, settings_from
from trnqc.mp2.job import Job, below_checkpoint
from trnqc.mp2.reference.molecule import Geometry, load_geometries


def jobs_from(args: argparse.Namespace) -> tuple[Job, ...]:
    """The jobs that the options describe, one for each frame of the file. Raises InputError, MoleculeError.

    Jobs of several frames have checkpoints in subdirectories with the names of the frames.
    """
    for option in ("json", "xyz", "trajectory", "plot"):
        check_target(f"--{option}", getattr(args, option))
    geometries = load_geometries(args.geometry, args.charge, args.spin, args.unit)
    jobs = tuple(_job(args, geometry) for geometry in geometries)
    return jobs if len(jobs) == 1 else tuple(below_checkpoint(job, job.geometry.name) for job in jobs)


def _job(args: argparse.Namespace, geometry: Geometry) -> Job:
    return Job(
        geometry=geometry,
        basis=args.basis,
        backend=args.backend,
        precision=args.precision,
        fused=args.fused_energy,
        compare_with=tuple(_backend_and_precision(text) for text in args.compare_with),
        scs=(args.scs_os, args.scs_ss),
        sos=args.sos,
        threads=positive("--threads", args.threads),
        **_scf_backend(args.scf_backend),
        density_fit=not args.conventional,
        allow_unconverged=args.allow_unconverged,
        stability=args.stability,
        **settings_from(args),
    )


def _scf_backend(text: str) -> dict[str, Any]:
    """The backend of J and K in the SCF, and its precision if the text has one."""
    backend, precision = _backend_and_precision(text)
    return {"scf_backend": backend} | ({"scf_precision": precision} if precision else {})


def _backend_and_precision(text: str) -> tuple[str, str | None]:
    name, _, precision = text.partition(":")
    return name, precision or None
