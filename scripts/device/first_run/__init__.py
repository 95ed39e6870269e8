"""The first hour on a GPU: what is there, whether results are right, and the named benchmarks, within a budget.

table.py      the steps: what each needs, its estimated seconds, and its work
inventory.py  GPUs, driver, packages and tools of the machine
checks.py     the work of steps that check results
stored.py     recorded launches of J and K, for machines without PySCF
timings.py    the work of steps that measure, by the benchmarks of scripts.device
running.py    steps as child processes, records, the budget
page.py       the summary as one HTML page
"""
