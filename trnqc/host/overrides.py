"""Methods that users have replaced in objects and classes of PySCF, which our programs must not pass over.

object, names of methods -> the first of them that PySCF or this package would not run, in words
"""

from __future__ import annotations

from typing import Any

# The packages whose methods our programs reproduce. What any other one defines is the user's.
OWN = ("trnqc", "pyscf")


def users_method(obj: Any, *names: str, below: type | None = None) -> str:
    """Return which of some attributes a user has replaced, or "".

    Parameters
    ----------
    obj
        An object whose class may be a user's subclass, and which may have attributes of its own.
    *names
        Names of methods, properties or other attributes of a class.
    below
        A class among the bases of the object: only those after it are looked at, as its ``super()`` does.

    Returns
    -------
    str
        "Class.name" of a method that counts when ``obj.name`` is called, beneath the layers of this package, or
        "name of this object" for an attribute of the object itself.

    Examples
    --------
    >>> class Mine(dict):
    ...     def get(self, key): ...
    >>> users_method(Mine(), "get")
    'Mine.get'
    """
    classes = type(obj).__mro__
    if below is not None:
        classes = classes[classes.index(below) + 1 :]
    for name in names:
        if below is None and name in getattr(obj, "__dict__", {}):
            return f"{name} of this object"
        if of := _definer(classes, name):
            return f"{of}.{name}"
    return ""


def _definer(classes: tuple[type, ...], name: str) -> str:
    """Return the user's class among these that defines an attribute first, or ""; layers of this package do not count.

    A function of a user that was put into a class of PySCF is the user's too.
    """
    for cls in classes:
        if name in vars(cls) and (package := _package(cls.__module__)) != "trnqc":
            member = vars(cls)[name]
            return "" if package in OWN and _package(_module(member, cls)) in OWN else cls.__name__
    return ""


def _module(member: Any, cls: type) -> str:
    """Return the module in which an attribute of a class was written."""
    if isinstance(member, property):
        member = member.fget
    member = getattr(member, "__func__", member)
    # A wrapper made with functools.wraps has the __module__ of what it wraps.
    written = getattr(member, "__globals__", {}).get("__name__") or getattr(member, "__module__", None)
    return written or cls.__module__


def _package(module: str) -> str:
    return module.split(".")[0]
