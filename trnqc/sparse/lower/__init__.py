"""Loop nests lowered to programs of the generator core.

nest -> tensors by number (tensors.py), variables known at a point (state.py) -> loops (coiterate.py), vectors (dot.py,
tile.py), workspaces (workspace.py), a sparse result (append.py) -> functions (program.py)
"""
