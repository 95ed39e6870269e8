"""From statements to a plan: order, fusion, tiles and the memory limit.

subscripts, program ─ statements ─► program ─ order ─► trees ─ limit ─► Plan
"""
