"""The search for the fastest nest: trees, fusions found by Z3, storage layouts, and estimated costs.

network, statistics of the operands, rates -> trees -> fusions -> loop orders and layouts -> candidates, fastest first
"""
