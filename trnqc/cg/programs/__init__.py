"""The mathematics of tensor products as programs: what each direction computes of each path, for any target.

directions.py: the operands and terms of each direction   coupling.py: A[i, k] = pw sum_j C[i, j, k] y[j] and its uses
uvu.py: one channel of a uvu path                         composed.py: paths z = M(w, P(x, y)) of the other modes

`cpu/` and `cuda/` say where the operands lie, loop over channels and edges, and add the results up.
"""
