"""The reading end of a connection, with the interface that the SDK's dispatcher expects."""

from abc import abstractmethod
from typing import Self

import anyio
from anyio.abc import AsyncResource
from mcp.shared.message import SessionMessage


class MessageReader(AsyncResource):
    """Yields messages to `async for` and to `receive`. Subclasses supply them."""

    def __aiter__(self) -> Self:
        return self

    @abstractmethod
    async def __anext__(self) -> SessionMessage | Exception:
        """Return the next message; `StopAsyncIteration` once the client has closed its end."""

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message.

        Raises:
            EndOfStream: the client has closed its end.
        """
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None
