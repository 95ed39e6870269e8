"""Plans on ranks: each holds ranges of arrays, and what moves between steps is sent.

Distribution, DTensors -> distributed: checked -> rank_run: products of blocks, messages -> DTensors
Plan, arrays -> program: agreement, shares of parts, exchange -> arrays on all ranks
"""
