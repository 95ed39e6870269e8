"""Describe a MACE model, compile its kernels in advance, and write it to a file that needs no PyTorch."""

from __future__ import annotations

import argparse
import time
from typing import Any

from rich.text import Text

from trnqc.host.output import add_output, console_of, write_json
from trnqc.jit import find_compiler
from trnqc.mace.convolutions import RADIALS
from trnqc.mace.evaluate import DTYPES, Evaluator
from trnqc.mace.files import save
from trnqc.mace.model import Model
from trnqc.mace.prepare import prepare
from trnqc.mace.source import description


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "model",
        help="a file that this command has written, or a model file of mace-torch, which PyTorch unpickles: open only "
        "files that you trust",
    )
    parser.add_argument("--head", help="the head of a model with several")
    parser.add_argument("--prepare", action="store_true", help="compile the kernels for this machine")
    parser.add_argument(
        "--dtype", choices=DTYPES, nargs="+", default=["float32"], help="types to compile for (default: float32)"
    )
    parser.add_argument("--output", metavar="FILE", help="write the model to a file that is read without PyTorch")
    parser.add_argument(
        "--folder",
        help="write the model, its kernels and a library to a folder, for programs in C++ and for LAMMPS; "
        "the first type of --dtype is used",
    )
    parser.add_argument("--radial", choices=RADIALS, default="exact", help="radial functions (default: exact)")
    parser.add_argument(
        "--elements", type=int, nargs="+", metavar="Z", help="atomic numbers for which the folder is (default: all)"
    )
    add_output(parser, "what the model consists of")


def run(args: argparse.Namespace) -> int:
    """Print what a model consists of, and do what the options say."""
    model = description(args.model, args.head)
    facts = _facts(model)
    write_json(args, facts)
    console = console_of(args)
    for name, value in facts.items():
        console.print(Text(f"{name}: {value if isinstance(value, str) else ', '.join(map(str, value))}"))
    for dtype in args.dtype if args.prepare else ():
        start = time.perf_counter()
        Evaluator(model, dtype, radial=args.radial)
        seconds = time.perf_counter() - start
        console.print(Text(f"{dtype}: kernels ready after {seconds:.1f} s ({find_compiler().label})"))
    written = [args.output] if args.output else []
    if args.output:
        save(model, args.output)
    if args.folder:
        written.append(prepare(Evaluator(model, args.dtype[0], radial=args.radial), args.folder, args.elements))
    for path in written:
        console.print(Text(f"written: {path}"), soft_wrap=True)
    return 0


def _facts(model: Model) -> dict[str, Any]:
    """What a model consists of, by name."""
    return {
        "elements": [int(number) for number in model.numbers],
        "head": model.head,
        "parameters": model.dtype,
        "features by layer": [str(product.irreps_out) for product in model.products],
        "correlation": [max(len(part) for part in product.couplings) for product in model.products],
        "radial functions": f"{model.basis.size} {model.basis.kind} functions up to {model.basis.r_max:g} Angstrom",
        "pair repulsion": "yes" if model.repulsion else "no",
        "dipole moments": "yes" if model.dipoles else "no",
    }
