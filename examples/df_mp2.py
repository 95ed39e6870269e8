#!/usr/bin/env python
"""DF-MP2 energy of a molecule, from a geometry to JSON: the command ``trnqc mp2`` as a script.

    python examples/df_mp2.py benzene --basis cc-pvdz --compare-with simulator --json out.json

The same in Python, on a PySCF object of your own, is ``trnqc.DFMP2(mf).kernel()``; see the README.
"""

import sys

from trnqc.cli import main

if __name__ == "__main__":
    sys.exit(main(["mp2", *sys.argv[1:]]))
