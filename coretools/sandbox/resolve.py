"""The one interface of the two resolvers, and which of them this machine gets."""

from typing import Protocol

from coretools.errors import BadSetting
from coretools.sandbox import openat2
from coretools.sandbox.openat2 import Openat2
from coretools.sandbox.walk import Walk


class Resolver(Protocol):
    """Opens a path beneath the handle of a directory, in an act that can't be raced.

    The path is free of `..` and is opened only if no component of it is a link. So the text of a path that was opened
    is the place that was reached, which is what deny globs and rights are decided by.
    """

    name: str

    def open(self, beneath: int, relative: str, flags: int) -> int:
        """A new descriptor of the thing at `relative`; `.` is the directory itself.

        Raises:
            OSError: ELOOP or ENOTDIR where a component is a link, else as open(2).
        """
        ...


def resolver_named(name: str | None) -> Resolver:
    """The resolver of this name; None takes the strongest that the kernel has.

    Raises:
        BadSetting: no such resolver, or not on this kernel.
    """
    if name is None:
        return Openat2() if openat2.available() else Walk()
    if name == "walk":
        return Walk()
    if name != "openat2":
        raise BadSetting(f"resolver {name}: there are openat2 and walk")
    if not openat2.available():
        raise BadSetting("resolver openat2: this kernel lacks it, or a filter forbids it; take walk")
    return Openat2()
