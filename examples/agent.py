"""An agent as a tool: typed input, a step at a time, the client's model and directories where it offers them.

    python -m examples.agent

The agent itself is a stand-in: it looks nothing up. What matters is what stands around it.
"""

from dataclasses import dataclass, field

from coretools.config.settings import Asking
from coretools.hosting.serve import ServeOptions, serve_stdio
from coretools.operations.agent_tools import AgentContext, agent_tool
from coretools.operations.declare import Effect, asks
from coretools.operations.registry import Registry
from coretools.questions.kinds import AskModel, AskRoots

registry = Registry()


@dataclass(frozen=True)
class Topic:
    """What the agent takes: each field is an argument of the tool."""

    subject: str
    sources: list[str] = field(default_factory=list)


async def research(topic: Topic, context: AgentContext) -> str:
    """Look into a subject, source by source, and sum it up."""
    roots = await context.ask(AskRoots(key="directories", default=()))
    question = f"Sum up {topic.subject} in one sentence."
    summary = await context.ask(AskModel(key="summary", message=question, default="nothing was summed up"))
    for source in topic.sources:
        await context.step(f"reading {source}")
        await context.services.values.set(f"read/{context.principal}/{source}", context.call_id.encode())
    await context.step("writing")
    return f"{topic.subject}: {summary} ({len(topic.sources)} sources, {len(roots)} directories)"


registry.add(asks("directories", "summary")(agent_tool(research, Effect.READ)))

# The client's model may be asked too; by default only the person before it is.
OPTIONS = ServeOptions(name="research", asking=Asking(mode="sampling"))

if __name__ == "__main__":
    raise SystemExit(serve_stdio(registry, options=OPTIONS))
