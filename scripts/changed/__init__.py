"""The tests of what changed and of what uses it, for `./run test`.

`__main__.py` asks git, `graph.py` reads sources, `long.py` lists long tests, and `mutants.py` asks what
the quick tests see.
"""
