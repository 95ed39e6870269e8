"""What happens to trnqc in long runs, in crowds, when it is killed, and in unusual surroundings.

    mixed          many jobs of all kinds in one process: is its memory flat?
    crowd          many processes that share one cache of kernels and one checkpoint
    kills          kill -9 at random moments, and the same work again
    surroundings   clocks, disks, memory, processors, locales and time zones that are not as usual

``python -m scripts.soak`` runs all of them.
"""
