"""Programs of contractions on processes over gloo: memory of a rank, and failures that end all ranks."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tests.torch_ops.test_ranks import Started

# One iteration of coupled cluster within a limit of less than its largest temporary.
LIMITED = """
    import sys, tracemalloc
    import numpy as np
    from tests.contraction.test_shares import OUTPUTS, closed_shells, compare
    from trnqc.contraction import einsum_plan
    from trnqc.contraction.ranks import program as shared_programs
    from trnqc.contraction.ranks.program import over_ranks
    from trnqc.contraction.shares.options import Link
    from trnqc.ranks.transport import started

    # Messages of a busy machine may be so slow that no work would be divided.
    shared_programs.measured_link = lambda ranks: Link()
    limit = int(sys.argv[1])
    program, arrays = closed_shells(12, 24)
    with started("cpu") as ranks:
        plan = einsum_plan(program, arrays, outputs=OUTPUTS, memory_limit=limit, max_slowdown=None)
        shared = over_ranks(plan, ranks)
        shared.run(arrays)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        found = shared.run(arrays, check_finite=False)
        peak = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        compare(found, einsum_plan(program, arrays, outputs=OUTPUTS).run(arrays))
        # Python's own objects take some 100 kB.
        assert peak <= limit + sum(x.nbytes for x in found.values()) + 200_000, (peak, limit)
        received = ranks.sum(np.array([shared.received]))[0]
        assert received == shared.division.received_bytes > 0
        print("rank done")
"""

# Rank 1 dies when it is asked for a block of the function f in its part of the program.
DYING = """
    import os
    import numpy as np
    from trnqc.contraction import einsum_plan
    from trnqc.contraction.ranks.program import over_ranks
    from trnqc.ranks.transport import started

    TEXT = '''
    space n = 40
    index i j k : n
    tensor A[n,n]
    function f[n,n] cost 100000
    X[i,j] = A[i,k] * f[k,j]
    R[i,j] = X[i,k] * X[k,j]
    '''

    with started("cpu", timeout=20) as ranks:
        shared = over_ranks(einsum_plan(TEXT), ranks)

        def f(one, two):
            if ranks.rank == 1:
                os._exit(7)
            return np.ones((one.stop - one.start, two.stop - two.start))

        shared.run(A=np.ones((40, 40)), f=f)
"""

DIFFERENT = """
    import os
    from trnqc.contraction import einsum_plan
    from trnqc.contraction.ranks.program import over_ranks
    from trnqc.ranks.transport import started

    with started("cpu", timeout=20) as ranks:
        text = f"space n = 4\\nindex i j k : n\\ntensor A[n,n]\\nR[i,j] = {ranks.rank + 1} * A[i,k] * A[k,j]"
        over_ranks(einsum_plan(text), ranks)
"""


def test_two_ranks_keep_the_limit_and_move_what_was_planned(tmp_path):
    ended = Started(tmp_path, LIMITED, 2, [3_000_000]).ended()
    assert [(status, out) for status, out, _ in ended] == [(0, "rank done\n")] * 2, ended


@pytest.mark.slow
def test_a_rank_that_dies_ends_the_other_with_one_error(tmp_path):
    (status, _, errors), (died, _, _) = Started(tmp_path, DYING, 2, []).ended(seconds=60)
    assert died == 7 and status not in (0, None)
    assert "has lost rank 1" in errors or "rank 1 of 2 has not been heard of" in errors
    assert errors.count("start all") == 1


def test_another_program_on_one_rank_ends_all(tmp_path):
    ended = Started(tmp_path, DIFFERENT, 2, []).ended(seconds=60)
    assert all(status not in (0, None) for status, _, _ in ended)
    assert "rank 1 has another version of the program than rank 0" in "".join(errors for *_, errors in ended)
