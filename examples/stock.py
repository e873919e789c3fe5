"""A small store: output schemas from return annotations, and hints about the effect of a call.

python -m examples.stock
"""

from typing import Annotated, Literal, TypedDict

from pydantic import BaseModel, Field

from coretools import App, Effect, NotFound

app = App("stock", version="1.0", instructions="Look an article up before you change it.")


class Article(BaseModel):
    """One article."""

    number: Annotated[str, Field(pattern="^[A-Z][0-9]{3}$")]
    name: str
    count: int = 0
    price: float | None = None


class Total(TypedDict):
    """Totals over all articles."""

    articles: int
    value: float


ARTICLES: dict[str, Article] = {}


@app.tool(Effect.ADD, title="Add an article")
def add_article(article: Article) -> Article:
    """Add an article."""
    return ARTICLES.setdefault(article.number, article)


@app.tool(Effect.CHANGE, idempotent=True)
def set_count(number: str, count: Annotated[int, Field(ge=0)]) -> int:
    """Set the count of an article and return the previous one."""
    article = _article(number)
    before, article.count = article.count, count
    return before


@app.tool(Effect.CHANGE, open_world=True)
def order(number: str, speed: Literal["slow", "fast"] = "slow") -> None:
    """Order more of an article from its maker."""
    _article(number).count += 1 if speed == "slow" else 10


@app.tool(Effect.READ)
def is_there(number: str) -> bool:
    """Whether the article is in stock."""
    return number in ARTICLES and ARTICLES[number].count > 0


@app.tool(Effect.READ)
def price(number: str) -> float | None:
    """The price of an article, if it is known."""
    return _article(number).price


@app.tool(Effect.READ)
def articles() -> list[Article]:
    """Every article."""
    return list(ARTICLES.values())


@app.tool(Effect.READ)
def total() -> Total:
    """Totals over all articles."""
    value = sum(article.count * (article.price or 0) for article in ARTICLES.values())
    return {"articles": len(ARTICLES), "value": value}


@app.tool(Effect.READ)
def by_price() -> dict[str, list[str]]:
    """Article numbers, grouped by whether their price is known."""
    known = {number for number, article in ARTICLES.items() if article.price is not None}
    return {"known": sorted(known), "unknown": sorted(ARTICLES.keys() - known)}


@app.tool(Effect.READ, structured=False)
def label(number: str) -> str:
    """A label to print, as plain text."""
    article = _article(number)
    return f"{article.number} {article.name}"


def _article(number: str) -> Article:
    if number not in ARTICLES:
        raise NotFound(f"{number}: no such article; `articles` has all", path=number)
    return ARTICLES[number]


if __name__ == "__main__":
    raise SystemExit(app.stdio())
