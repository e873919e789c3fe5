"""The order in which a request passes the middleware (docs/specs/http.md)."""

from pathlib import Path
from typing import Any

from tests.web.plans import plan_of, site_at_work

ORDER = """
    ObservabilityMiddleware DrainMiddleware ReplaceableApp RequestValidator PageRouter LocalCallerMiddleware
    RateLimitMiddleware BodyMiddleware BatchMiddleware RefuseNewWork ConcurrencyMiddleware RequestIdMiddleware
    TenantRouter
"""


async def test_a_request_passes_the_middleware_in_the_stated_order(tmp_path: Path) -> None:
    """http-28: cheap checks run before costly ones, and no body is read before authentication."""
    async with site_at_work(plan_of("--root", str(tmp_path))) as (_, site):
        app: Any = site.app
        passed = [type(app).__name__]
        while hasattr(app, "_app"):
            app = app._app
            passed.append(type(app).__name__)
    assert passed == ORDER.split()
