"""Records of the best knobs of kernels, and the choice of a record for a launch.

    kernel, shape, precision, target  --choice.choose------->  constants and a note    user > shipped > default
    a launch or a request             --requests.check------>  kernel                  or an error if it is not valid
    a kernel                          --sources.kernel_hash->  digest                  for which a record is valid
    a machine                         --conditions---------->  versions, flags, target

Records are stored in the user's directory and in ``shipped``. `autotune` searches, measures and writes them, and this
room does not depend on it. The descriptor of a kernel defines its knobs and their rules (`nki_kernels.descriptors`).
"""
