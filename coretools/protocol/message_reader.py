"""The reading end of a connection, as the SDK's dispatcher takes it: one message after the other, in two forms."""

from abc import abstractmethod
from typing import Self

import anyio
from anyio.abc import AsyncResource
from mcp.shared.message import SessionMessage


class MessageReader(AsyncResource):
    """Gives messages to `async for` and to `receive`; a subclass says which come."""

    def __aiter__(self) -> Self:
        return self

    @abstractmethod
    async def __anext__(self) -> SessionMessage | Exception:
        """The next message; `StopAsyncIteration` once the client has closed its end."""

    async def receive(self) -> SessionMessage | Exception:
        """The next message.

        Raises:
            EndOfStream: the client has closed its end.
        """
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None
