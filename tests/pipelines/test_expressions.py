"""Assertions about results (docs/specs/pipelines.md)."""

import pytest

from coretools.pipelines.expressions import BadExpression, Expressions

RESULT = {
    "ok": False,
    "text": "hello\nworld",
    "data": {"count": 2, "items": [{"id": 1, "at": "now"}, {"id": 2, "at": "then"}], "none": None},
}


HOLDS = {
    "$.data.count == 2 && $.data.items[0].id == 1": True,
    "$.data.count > 3 || $.ok == false": True,
    "$.ok": False,
    "!$.ok && !$.data.none && !$.missing": True,
    "$.data.items[?@.id == 2]": True,
    "length($.data.items) == 2 && count($..id) == 2": True,
    'search($.text, "w.rld") && match($.data.items[0].at, "n.w")': True,
    '$.text contains "wor" and not ($.text == "x")': True,
    '$.data.items[1].at =~ "th.n"': True,
    '!($.data.items[1].at =~ "then")': False,
    "$.data.items[1].at =~ /TH.N/i": True,
    '$.data.items[1].at =~ "he"': False,
    '$.data.items[?@.at =~ "n.w"]': True,
    "$.data.missing == null": False,
    "@.data.count == 2": True,
}


async def test_an_expression_holds_or_not() -> None:
    """pipelines-8: a query alone holds if it selects something other than false and null; `=~` matches a whole text."""
    async with Expressions() as expressions:
        await expressions.put((), RESULT)
        assert {text: (await expressions.check(text)).holds for text in HOLDS} == HOLDS


async def test_what_fails_is_shown_with_its_values() -> None:
    """pipelines-8"""
    async with Expressions() as expressions:
        await expressions.put((), RESULT | {"long": ["x" * 400] * 3})
        checked = await expressions.check('$.data.count > 2 || $.missing == "x" || $.long == 1')
        shown = dict(checked.actual)
        assert shown["$['data']['count']"] == "2"
        assert shown["$['missing']"] == "nothing"
        assert len(shown["$['long']"]) < 600


async def test_expressions_are_limited_and_the_next_one_works() -> None:
    """pipelines-9: in time, in memory, in length; wrong ones are refused."""
    hostile = {"word": "a" * 40 + "!", "deep": [[[[[[[[[[]]]]]]]]]] * 400}
    async with Expressions(cpu_seconds=0) as expressions:
        await expressions.put((), hostile)
        for text, reason in (
            ('search($.word, "^(a|a)*$")', "takes too much time or memory"),
            ("$" * 5000, "an expression may have 4096 characters"),
            ("(" * 4000 + "$", "no usable expression"),
            ("$.x[", "no usable expression"),
            ("1 == 1)], $[?(1 == 1", "no usable expression"),
            ("1 == 1)][?(1 == 1", "no usable expression"),
            ("'x'", "no usable expression"),
            ("$.word =~ 3", "=~ takes a regular expression, as text or between slashes"),
            ('$.word =~ "("', "no usable expression: missing"),
        ):
            with pytest.raises(BadExpression, match=reason):
                await expressions.check(text)
        assert (await expressions.check("length($.deep) == 400")).holds


async def test_a_query_selects_one_value_and_a_mask_hides_many() -> None:
    """pipelines-8"""
    async with Expressions() as expressions:
        await expressions.put((), {"steps": {"a": RESULT}})
        assert await expressions.select("steps.a.data.items[1].id") == 2
        assert await expressions.select("$.steps.a.data.none") is None
        for text in ("steps.a.data.items[*].id", "steps.b"):
            with pytest.raises(BadExpression, match=r"selects (several values|nothing)"):
                await expressions.select(text)
        masked = await expressions.masked(RESULT, ["$..at", "$.data.items[0]", "$.nowhere"])
        assert masked["data"]["items"] == ["[ignored]", {"id": 2, "at": "[ignored]"}]
        assert await expressions.masked({"a": {"a": {"a": 1}}}, ["$..a"]) == {"a": "[ignored]"}
        assert await expressions.masked([1], ["$"]) == "[ignored]"
