"""Compiled programs on disk: the vendor's cache entries that are ours, made ahead of time, cleared without harm.

    kernel, shape, tiles  --programs.program-->  Program and its key     source, target, constants, versions, flags
    environment           --places.places----->  the vendor's caches     PyTorch/XLA and native torch
    a cache               --places.entries---->  its entries             compiled or unfinished, size, age
    a compilation         --ledger.watch------>  ledger                  which entries a program brought about
    programs              --warming.warm------>  entries before need     on a device, or by the compiler alone
    ledger                --ledger.clear------>  entries gone            ours, unchanged and unlocked only

The vendor's keys are hashes of graphs that only its own tools compute; ownership is therefore observed, never guessed.
"""

from trnqc.neff_cache.ledger import clear, owners, watch
from trnqc.neff_cache.places import Entry, Place, entries, places
from trnqc.neff_cache.programs import Program, program
from trnqc.neff_cache.warming import warm

__all__ = ["Entry", "Place", "Program", "clear", "entries", "owners", "places", "program", "warm", "watch"]
