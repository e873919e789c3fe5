"""The outermost middleware: reports every request to the observers."""

from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coretools.web.common.error_response import SERVER_FAULT
from coretools.web.common.events import EXCHANGE_KEY, Exchange, RequestWatcher
from coretools.web.observability.tracing import Tracing

UNTRACED_PATHS = ("/healthz", "/readyz", "/metrics")


class ObservabilityMiddleware:
    """Reports every request to the observers. The outermost middleware, so it sees refused requests too."""

    def __init__(self, app: ASGIApp, watchers: Sequence[RequestWatcher], *, tracing: Tracing | None = None) -> None:
        self._app = app
        self._watchers = tuple(watchers)
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        exchange = Exchange(scope, receive, send)
        # Middleware further in writes the reason of a refusal into it.
        scope[EXCHANGE_KEY] = exchange
        # Probes and scrapes come every few seconds and call nothing.
        if self._tracing is None or exchange.path in UNTRACED_PATHS:
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
            # Notified before sending: a client that has the response finds it counted.
            if message["type"] == "http.response.start":
                exchange.answer(message)
                for watcher in self._watchers:
                    watcher.answer_began(exchange)
            await exchange.send(message)

        try:
            await self._app(exchange.scope, exchange.receive, send)
        except Exception:
            # uvicorn answers with this status if nothing was sent yet.
            exchange.status = exchange.status or SERVER_FAULT
            raise
