"""Every HTTP request is seen here first and last: counted, logged, and made a part of its caller's trace."""

from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coretools.serving.web.answers import SERVER_FAULT
from coretools.serving.web.operations.tracing import Tracing
from coretools.serving.web.operations.watching import EXCHANGE_KEY, Exchange, RequestWatcher


class Observed:
    """An app whose requests are told to watchers. Outside of everything that refuses: what is refused is seen too."""

    def __init__(
        self,
        app: ASGIApp,
        watchers: Sequence[RequestWatcher],
        *,
        endpoint: str = "/mcp",
        tracing: Tracing | None = None,
    ) -> None:
        """`endpoint` is the path at which the protocol is spoken."""
        self._app = app
        self._watchers = tuple(watchers)
        self._endpoint = endpoint
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send, endpoint=self._endpoint)
        scope[EXCHANGE_KEY] = exchange
        if self._tracing is None:
            await self._watched(exchange)
        else:
            with self._tracing.request(exchange):
                await self._watched(exchange)

    async def _watched(self, exchange: Exchange) -> None:
        for watcher in self._watchers:
            watcher.request_began(exchange)
        try:
            await self._serve(exchange)
        finally:
            for watcher in self._watchers:
                watcher.request_ended(exchange)

    async def _serve(self, exchange: Exchange) -> None:
        async def send(message: Message) -> None:
            # Told before it is sent: whoever has the answer finds it counted.
            if message["type"] == "http.response.start":
                exchange.answer(message)
                for watcher in self._watchers:
                    watcher.answer_began(exchange)
            await exchange.send(message)

        try:
            await self._app(exchange.scope, exchange.receive, send)
        except Exception:
            # The server below this answers so when nothing was sent yet.
            exchange.status = exchange.status or SERVER_FAULT
            raise
