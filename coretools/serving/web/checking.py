"""`coretools-http --check`: everything that a start opens and refuses, without listening anywhere."""

from coretools.serving.draining import Draining
from coretools.serving.web.application import PATH
from coretools.serving.web.auth.exposure import allowed_hosts, is_exposed
from coretools.serving.web.guarding.tls import tls_context
from coretools.serving.web.service import Plan, served


async def checked(plan: Plan) -> list[str]:
    """What would be served, a line each.

    Raises:
        BadSetting: what would end the start.
        Unconfined: commands can't be held as the operator requires.
    """
    server = plan.config.server
    tls_context(server)
    async with served(plan, server.port, Draining()):
        pass
    reach = "other machines" if is_exposed(plan.config) else "this machine only"
    lines = [
        f"{server.host}:{server.port}{PATH}, for {reach}; hosts {', '.join(allowed_hosts(plan.config, server.port))}"
    ]
    for role in plan.roles.values():
        settings = role.settings
        rights = ", read-only" if settings.read_only else ""
        lines.append(f"role {role.name}: {', '.join(settings.roots)}; profile {settings.profile}{rights}")
    return lines
