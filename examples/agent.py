"""An agent as a tool: typed input, progress for each step, and questions to the client's model and for its directories.

    python -m examples.agent

The agent itself does no real work; the example shows how an agent is connected.
"""

from dataclasses import dataclass, field

from coretools import AgentContext, App, Asking, AskModel, AskRoots, Effect, agent_tool, asks

# Allow questions to the client's model; by default only its user is asked.
app = App("research", asking=Asking(mode="sampling"))


@dataclass(frozen=True)
class Topic:
    """Input of the agent. Each field is an argument of the tool."""

    subject: str
    sources: list[str] = field(default_factory=list[str])


async def research(topic: Topic, context: AgentContext) -> str:
    """Research a subject, source by source, and summarize it."""
    roots = await context.ask(AskRoots(key="directories", default=()))
    question = f"Sum up {topic.subject} in one sentence."
    summary = await context.ask(AskModel(key="summary", message=question, default="nothing was summed up"))
    for source in topic.sources:
        await context.step(f"reading {source}")
        await context.services.values.set(f"read/{context.principal}/{source}", context.call_id.encode())
    await context.step("writing")
    return f"{topic.subject}: {summary} ({len(topic.sources)} sources, {len(roots)} directories)"


app.add(asks("directories", "summary")(agent_tool(research, Effect.READ)))

if __name__ == "__main__":
    raise SystemExit(app.stdio())
