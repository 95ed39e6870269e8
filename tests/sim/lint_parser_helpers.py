"""Helpers in another file than the kernel that calls them."""


def calls_a_helper(x):
    return outside_the_language(x)


def outside_the_language(x):
    for a, b in ((1, 2), (3, 4)):
        print(a, b)


def within_the_language(x):
    for pair in ((1, 2), (3, 4)):
        print(pair[0], pair[1])
