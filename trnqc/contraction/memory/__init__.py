"""Which loops are fused and tiled, so that a plan keeps its memory limit.

    tree ─ fusion ─► Fusion ─ loop_nest ─► Nest ─ tiled_loops, tiles ─► tile sizes ─ schedule ─► Schedule

`locality` chooses blocks for caches, `disk_passes` temporaries on disk.
"""
