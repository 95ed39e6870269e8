"""The formulas of tensor products as programs: what each direction computes for each path, for any target.

directions.py    the operands and terms of each direction
coupling.py      the couplings A[i, k] = pw sum_j C[i, j, k] y[j] of a channel of y, and sums over them
uvu.py           one channel of a uvu path
elementwise.py   one pair of channels of x and y
composed.py      the steps of a path z = M(w, P(x, y)) of another mode than uvu

`cpu/` and `cuda/` decide where operands are stored, loop over channels and edges, and add up the results.
"""
