"""A modelled profile of one of our kernels, for `trnqc profile`: no device takes part and no arithmetic is done.

    python -m scripts.model.profile gemm --shape M=2048,N=2048,K=2048 --precision bf16 --target trn2 --out gemm.json
    python -m scripts.model.profile mp2_energy --shape 64,448,1536 --target trn1 --out mp2.json --set group=1
    trnqc profile gemm.json --html gemm.html

The constants of the kernel are its own defaults unless --set changes some. Repeated passes are timed until they are
steady and then extrapolated (--every places all of them); of the events that were placed the first --events are kept.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys

from nki_kernels.descriptors import kernels
from nki_kernels.descriptors.descriptor import ITEMSIZE
from trnqc.errors import InputError, TrnqcError
from trnqc.host.files import write_aside
from trnqc.sim import Spec, timeline
from trnqc.tuning.requests import check, parse_shape


def constants(kernel: str, shape: dict[str, int], precision: str, changes: list[str]) -> dict[str, int]:
    """The kernel's defaults with the changes "name=number"."""
    defaults = kernels()[kernel].default(shape, precision)
    for change in changes:
        name, _, number = change.partition("=")
        if name not in defaults or not number.isdigit():
            raise InputError(f"--set: expected one of {', '.join(defaults)} as NAME=NUMBER, found {change!r}")
        defaults[name] = int(number)
    return defaults


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernel", choices=tuple(kernels()))
    parser.add_argument(
        "--shape", required=True, help="extents, such as M=2048,N=2048,K=2048 or nocc=64,nvir=448,naux=1536"
    )
    parser.add_argument("--precision", choices=tuple(ITEMSIZE), default="fp32")
    parser.add_argument("--target", choices=("trn1", "trn2", "trn3"), default="trn2")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=NUMBER", help="a constant of the kernel")
    parser.add_argument("--every", action="store_true", help="place every pass instead of extrapolating")
    parser.add_argument("--events", type=int, default=50_000, help="events to keep (default 50000)")
    parser.add_argument("--out", required=True, help="the profile to write, JSON")
    args = parser.parse_args(argv)
    try:
        shape = parse_shape(args.kernel, args.shape)
        kernel = check(args.kernel, shape, args.precision, args.target)
        chosen = constants(args.kernel, shape, args.precision, args.set)
        call = kernel.example(shape, args.precision, chosen, 1, Spec)
        measured = timeline(kernel.function, target=args.target, extrapolate=not args.every, event_limit=args.events)(
            *call.args, **call.constants
        )
        extents = " x ".join(map(str, shape.values()))
        command = shlex.join(["python", "-m", "scripts.model.profile", *(sys.argv[1:] if argv is None else argv)])
        data = measured.to_dict() | {"kernel": f"{args.kernel} {extents}, {args.precision}", "command": command}
        write_aside(args.out, json.dumps(data, allow_nan=False))
    except TrnqcError as error:
        print(f"model_profile: error: {error}", file=sys.stderr)
        return 2
    print(f"{args.kernel}: {measured.total_ns / 1e6:.4g} ms modelled on {args.target}; wrote {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
