"""The simulated machine: its generations, engines and operations, the state of a run, and what breaks its rules.

target of the environment (`targets`), version of NKI (`version`) -> run with counts (`machine`) -> findings (`rules`)
"""
