"""Stage 2: which loops are fused and tiled, so that a plan keeps within its memory limit.

tree -> fusion graph -> fused loop nest -> tiles -> schedule; for caches in `locality`, for disks in `disk_passes`
"""
