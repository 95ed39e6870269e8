"""Our compiled programs (NEFF files) in the vendor's caches: list them, compile them in advance, and remove them.

    kernel, shape, tiles  --programs.program------->  Program and its key     source, target, constants, versions, flags
    environment           --caches.vendor_caches--->  the vendor's caches     PyTorch/XLA and native torch
    a cache               --caches.entries--------->  its entries             compiled or unfinished, size, age
    a compilation         --ledger.watch----------->  private caches          to which nobody else writes
    private caches        --staging.publish-------->  the vendor's caches     entries that these did not have
    new entries           --ledger.watch----------->  ledger                  the files that trnqc has written
    programs              --warming.warm----------->  new entries             on a device, or by the compiler alone
    ledger                --ledger.clear----------->  removed files           only ours, unchanged and not locked

The vendor's keys are hashes of graphs, which only its own tools can compute. An entry therefore counts as ours only if
trnqc has placed it in the cache itself.
"""

from trnqc.backends.neuron.neff.caches import Entry, VendorCache, entries, vendor_caches
from trnqc.backends.neuron.neff.ledger import clear, owners, watch
from trnqc.backends.neuron.neff.programs import Program, program
from trnqc.backends.neuron.neff.warming import warm

__all__ = ["Entry", "Program", "VendorCache", "clear", "entries", "owners", "program", "vendor_caches", "warm", "watch"]
