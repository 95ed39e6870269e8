"""Running a plain function as a kernel, under a named target."""

import os
from unittest import mock

from trnqc.sim import last_trace, simulate, trace


def run(body, *arrays, target="trn2", cores=1):
    """Result of ``body(*tensors)``; ``cores`` 2 launches it on both."""
    from trnqc.sim import jit

    with mock.patch.dict(os.environ, NEURON_PLATFORM_TARGET_OVERRIDE=target):
        return simulate(jit(body)[cores])(*arrays)


def counted(body, *arrays, target="trn2"):
    """Trace of a run with data."""
    run(body, *arrays, target=target)
    return last_trace()


def dry(body, *args, target="trn2", records=False):
    """Trace of a run without data."""
    with mock.patch.dict(os.environ, NEURON_PLATFORM_TARGET_OVERRIDE=target):
        return trace(body, records=records)(*args)
