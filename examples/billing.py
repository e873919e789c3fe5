"""An application of parts: another App, another server, and an agent whose steps the client sees.

python -m examples.billing
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from coretools import AgentContext, App, Effect, agent_tool
from examples import stock

billing = app = App("billing")
billing.mount("stock", stock.app)  # another App: stock_total, stock_articles, ...
billing.mount("desk", [sys.executable, str(Path(__file__).with_name("greeting.py"))])  # a program that serves MCP


@dataclass(frozen=True)
class Order:
    """The input of the agent: its fields are the arguments of the tool."""

    number: str
    count: int = 1


async def audit(order: Order, context: AgentContext) -> str:
    """Look for what is wrong with an order."""
    async with context.doing("tool", "stock"):
        count = stock.ARTICLES[order.number].count if order.number in stock.ARTICLES else 0
    async with context.doing("model", "judge") as step:
        verdict = "fine" if order.count <= count else "too many"  # a real one would ask a model here
        step.tokens = 120
    return verdict


billing.add(agent_tool(audit, Effect.READ))

if __name__ == "__main__":
    raise SystemExit(app.stdio())
