"""What a server reports about itself to clients, and a command line about itself to people."""

from dataclasses import dataclass

from coretools.distribution import VERSION

SERVER_NAME = "coretools"


@dataclass(frozen=True, slots=True, kw_only=True)
class Icon:
    """An icon for clients: the address of a picture, or a `data:` URI."""

    src: str
    mime_type: str = ""
    sizes: tuple[str, ...] = ()
    """Such as `48x48`, or `any`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """What a server reports about itself when a client connects."""

    name: str = SERVER_NAME
    version: str = VERSION
    title: str = ""
    """A name for people."""
    website: str = ""
    icons: tuple[Icon, ...] = ()
    instructions: str = ""
    """Instructions for the model."""
