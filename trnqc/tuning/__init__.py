"""What tuning leaves behind for whoever launches a kernel: its knobs, the values found best, and why.

    shape, precision, target  --choose.choose -->  Choice(constants, note)      user > shipped > default
    record's point            --kernels.realise-->  compile-time constants       refused when they do not fit the chip
    kernel, constants         --calls.example_call-->  arguments of one launch   for timing, for warming caches
    kernel                    --sources.source_hash-->  what a record and a compiled program are valid for

Searching and timing live in `autotune`, which writes the records; nothing here knows how they came about.
"""
