"""Loop nests lowered to programs of the generator core.

nest -> loops over stored coordinates -> workspaces and tiles -> program (gen)
"""
