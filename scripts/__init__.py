"""Benchmarks, models and checks of the project. Each is a module, run from the root of a checkout:

    python -m scripts.bench_eri --quick

=============================  ====================================================================
``registry``                   all benchmarks of this machine
``bench_*``                    time our kernels beside their peers on this machine
``device``                     the same on a GPU or a Trainium device; capture a profile there
``model``                      what the timeline model says of kernels, and projections to many ranks
``registers``                  what the compilers make of generated kernels
``conformance``                published NKI kernels on the simulator
``changed``                    the test files of what changed, for ``./run test``
``matrix``                     fast tests with several Pythons, and the oldest and newest releases in range
``release``                    wheels with compiled kernels
``peers``                      the test suites of other packages with our objects in the place of theirs
``fuzz``, ``soak``               damaged input; long runs, crowds, kills and unusual surroundings
``workloads``                  inputs and references that benchmarks and tests share
=============================  ====================================================================

Each script writes one JSON file with command, date and machine to the folder that ``profiles/README.md`` describes.
A script imports what it needs from ``trnqc`` and from other scripts, never from the tests.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The checkout that this package lies in."""
