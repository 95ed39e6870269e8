"""Our compiled programs (NEFF files) in the vendor's caches: listed, compiled ahead of need, and cleared without harm.

    kernel, shape, tiles  --programs.program------->  Program and its key     source, target, constants, versions, flags
    environment           --caches.vendor_caches--->  the vendor's caches     PyTorch/XLA and native torch
    a cache               --caches.entries--------->  its entries             compiled or unfinished, size, age
    a compilation         --ledger.watch----------->  ledger                  which entries a program has produced
    programs              --warming.warm----------->  entries before need     on a device, or by the compiler alone
    ledger                --ledger.clear----------->  entries gone            ours, unchanged and unlocked only

The vendor's keys are hashes of graphs that only its own tools compute. So an entry is known to be ours because it
appeared while one of our programs was compiled, and never by a guess.
"""

from trnqc.backends.neuron.neff.caches import Entry, VendorCache, entries, vendor_caches
from trnqc.backends.neuron.neff.ledger import clear, owners, watch
from trnqc.backends.neuron.neff.programs import Program, program
from trnqc.backends.neuron.neff.warming import warm

__all__ = ["Entry", "Program", "VendorCache", "clear", "entries", "owners", "program", "vendor_caches", "warm", "watch"]
