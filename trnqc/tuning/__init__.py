"""What tuning leaves behind for whoever launches a kernel: records of the best knobs, and the choice among them.

    kernel, shape, precision, target  --choice.choose------->  constants and a note    user > shipped > default
    a launch or a request             --requests.check------>  kernel                  refused when it is not sound
    a kernel                          --sources.kernel_hash->  digest                  what a record is valid for
    a machine                         --conditions---------->  versions, flags, target

Records lie in the user's directory and in ``shipped``. `autotune` searches, measures and writes them; nothing here
knows how they came about. Knobs and their rules stand in each kernel's descriptor (`nki_kernels.descriptors`).
"""
