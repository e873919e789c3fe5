"""Questions of servers to the person at the terminal (elicitation), or their answers given as options.

Every text of a server is escaped. A form is declined if nobody can be asked and the options do not answer it. A page is
opened only after a yes.
"""

import json
import sys
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import mcp_types as types
from anyio import to_thread

from coretools.cli.common.terminal import read_line
from coretools.cli.mcp.output import in_line
from coretools.cli.mcp.screen import Screen
from coretools.client.common.errors import ProtocolViolation
from coretools.client.questions.elicitation import Form, FormField, Values
from coretools.errors import CoreError, InvalidArguments
from coretools.questions.kinds import NO, YES
from coretools.truncation import cut_text

MAX_ATTEMPTS = 3
"""Invalid answers to one field before the form is cancelled."""

MAX_MESSAGE = 2_000
"""Characters shown of the message of a server."""

DECLINE, CANCEL = "/decline", "/cancel"

CANCELLED = types.ElicitResult(action="cancel")
DECLINED = types.ElicitResult(action="decline")


class _LeftError(CoreError):
    """The person declined or cancelled."""

    def __init__(self, result: types.ElicitResult) -> None:
        super().__init__("left")
        self.result = result


@dataclass(frozen=True, slots=True)
class Elicitation:
    """Answers the questions of one server."""

    server: str
    screen: Screen
    answers: Sequence[str] = ()
    """`name=value`, or `name:=JSON`, for fields of any form."""
    accepts_defaults: bool = False

    async def answer(self, params: types.ElicitRequestParams) -> types.ElicitResult | types.ErrorData:
        """Answer one question."""
        async with self.screen.asking():
            try:
                if isinstance(params, types.ElicitRequestURLParams):
                    return await self._visit(params)
                return await self._form(params.message, Form.of(params.requested_schema))
            except ProtocolViolation as error:
                self.screen.say(f"server {self.server!r}: {error}")
                return types.ErrorData(code=types.INVALID_PARAMS, message=str(error))
            except _LeftError as left:
                return left.result
        return CANCELLED  # the question was ended by Ctrl-C

    @property
    def _can_ask(self) -> bool:
        return self.screen.terminal.can_ask and not self.screen.is_at_prompt

    async def _form(self, message: str, form: Form) -> types.ElicitResult:
        values, problem = self._given(form)
        asked = f"server {self.server!r} asks: {cut_text(message, MAX_MESSAGE)}"
        if not problem and not form.missing(values) and (values or self.accepts_defaults):
            self.screen.say(f"{asked}: answered with {_shown(form, values)}")
        elif not self._can_ask:
            self.screen.say(f"{asked}: declined: {problem or _advice(form, form.missing(values))}")
            return DECLINED
        else:
            _write(f"{in_line(asked)}\n  (a line for each value; {DECLINE} or {CANCEL} ends it)\n")
            if problem:
                _write(f"  {in_line(problem)}\n")
            await self._ask_missing(form, values)
        return types.ElicitResult(action="accept", content=values)

    async def _ask_missing(self, form: Form, values: Values) -> None:
        for field in form.fields:
            if field.name not in values:
                await self._ask(field, values)
        await self._confirm(f"  Send {in_line(_shown(form, values))} to {in_line(self.server)}? [yes/no/cancel] ")

    def _given(self, form: Form) -> tuple[Values, str]:
        """Return the values of the options, and what is wrong with them."""
        values = form.defaults() if self.accepts_defaults else {}
        try:
            return values | form.answered(self.answers), ""
        except InvalidArguments as error:
            return values, f"--answer {error}"

    async def _ask(self, field: FormField, values: Values) -> None:
        """Ask for one value until it is valid; an empty line takes the default, or leaves an optional field out."""
        for _ in range(MAX_ATTEMPTS):
            text = await _typed(_prompt(field), echo=not field.is_secret)
            try:
                values |= _value(field, text)
            except InvalidArguments as error:
                _write(f"  {in_line(str(error))}\n")
            else:
                return
        raise _LeftError(CANCELLED)

    async def _visit(self, params: types.ElicitRequestURLParams) -> types.ElicitResult:
        asked = f"server {self.server!r} asks you to visit a page: {cut_text(params.message, MAX_MESSAGE)}"
        host = _host(params.url)
        if host is None:
            self.screen.say(f"{asked}: declined: {params.url[:200]!r} is no http or https address")
            return DECLINED
        if not self._can_ask:
            self.screen.say(f"{asked}: declined, nobody can be asked here; run this at a terminal: {params.url}")
            return DECLINED
        _write(f"{in_line(asked)}\n  {in_line(params.url)}\n  host: {host}\n")
        await self._confirm("  Open it in the browser? [yes/no/cancel] ", default="")
        # In a thread: a browser of the terminal runs until it is left.
        if not await to_thread.run_sync(webbrowser.open, params.url):
            _write("  no browser could be started; open the address yourself\n")
        return types.ElicitResult(action="accept")

    async def _confirm(self, prompt: str, default: str = "yes") -> None:
        for _ in range(MAX_ATTEMPTS):
            text = (await _typed(prompt)).strip().lower() or default
            if text in YES:
                return
            if text in NO:
                raise _LeftError(DECLINED)
            if text == "cancel":
                break
        raise _LeftError(CANCELLED)


async def _typed(prompt: str, *, echo: bool = True) -> str:
    """Read a line; its end, /cancel and /decline end the question."""
    text = await read_line(prompt, echo=echo)
    if text is None:
        _write("\n")
    if text is None or text.strip() == CANCEL:
        raise _LeftError(CANCELLED)
    if text.strip() == DECLINE:
        raise _LeftError(DECLINED)
    return text


def _value(field: FormField, text: str) -> Values:
    """Return the value of typed text by the name of its field; nothing for an optional field that is left out."""
    if not text and not field.has_default:
        if field.is_required:
            raise InvalidArguments(f"{field.name}: is required")
        return {}
    if not text:
        field.check(field.shape["default"])
        return {field.name: field.shape["default"]}
    return {field.name: field.parse(text)}


def _prompt(field: FormField) -> str:
    lines = [f"  {in_line(field.label)}"]
    for number, (value, label) in enumerate(field.choices.items(), 1):
        lines.append(f"    {number}) {in_line(value if label == value else f'{value}: {label}')}")
    if field.choices:
        lines.append("  numbers or values, separated by commas" if field.is_list else "  number or value")
    needed = "" if field.is_required or field.has_default else " (optional)"
    default = f" [{in_line(json.dumps(field.shape['default'], ensure_ascii=False))}]" if field.has_default else ""
    kind = "" if field.choices else f" ({in_line(str(field.shape.get('format') or field.shape.get('type')))})"
    return "\n".join(lines) + kind + needed + default + ": "


def _shown(form: Form, values: Values) -> str:
    """Return values for a message, without those of secrets."""
    secrets = {field.name for field in form.fields if field.is_secret}
    texts = [f"{name}={'***' if name in secrets else json.dumps(value)}" for name, value in values.items()]
    return cut_text(", ".join(texts) or "no values", MAX_MESSAGE)


def _advice(form: Form, missing: Sequence[str]) -> str:
    names = missing or [field.name for field in form.fields]
    options = " ".join(f"--answer {name}=VALUE" for name in names[:10])
    has_defaults = not form.missing(form.defaults())
    ways = [*([options] if options else []), *(["--accept-defaults"] if has_defaults else [])]
    return f"nobody can be asked here; give {' or '.join(ways)}"


def _host(url: str) -> str | None:
    """Return the host of a page in ASCII, with its port; None if it is not a web address."""
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable():
            return None
        name = parts.hostname.encode("idna").decode("ascii")
        return in_line(name if parts.port is None else f"{name}:{parts.port}")
    except ValueError:  # UnicodeError is one
        return None


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
