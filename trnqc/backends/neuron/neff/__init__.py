"""Our compiled programs (NEFF files) in the vendor's caches: list them, compile them in advance, and remove them.

    kernel, shape        --programs.neff_program-->  NeffProgram, its key     source, target, tiles, versions, flags
    environment          --caches.vendor_caches--->  the vendor's caches     PyTorch/XLA and native torch
    a cache              --caches.entries--------->  its entries             compiled or unfinished, size, age
    a program            --warming.warm----------->  private caches          on a device, or by the compiler alone
    private caches       --ledger.claim----------->  the vendor's caches     entries that these did not have
    ledger               --ledger.clear----------->  removed files           only ours, unchanged and not locked

The vendor's keys are hashes of graphs, which only its own tools can compute. An entry therefore counts as ours only if
trnqc has placed it in the cache itself.
"""
