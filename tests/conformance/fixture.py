"""What the official conformance suite calls, declared as anyone would declare commands, and served as such.

Names, texts and shapes are the suite's (`@modelcontextprotocol/conformance`, `src/scenarios/server`). Nothing here
knows the protocol's revisions: a question is asked once and reaches the client in the way that its revision has.
"""

import base64
import json
from typing import Annotated, Any, Literal

import anyio
from pydantic import BaseModel, Field, WithJsonSchema
from pydantic.config import JsonDict, JsonValue

from coretools.errors import CapabilityMissing, Unsupported
from coretools.operations.call import Call
from coretools.operations.content import Audio, Content, Embedded, Image, Message, Text
from coretools.operations.declare import Effect, asks, prompt, raw_schema, resource, tool
from coretools.operations.registry import Registry
from coretools.questions.kinds import AskConfirmation, AskForm, AskModel, AskRoots, AskText

PAUSE_SECONDS = 0.06
"""Between two progress notifications. The server drops all above 20 a second; the suite counts every one."""

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""A PNG of one pixel."""

SILENCE = base64.b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=")
"""A WAV with hardly a sample."""

SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


async def pause(seconds: float) -> None:
    """Take the time that a scenario of the suite requires of a tool."""
    await anyio.sleep(seconds)


def titled(word: str, *pairs: tuple[str, str]) -> JsonDict:
    output: list[JsonValue] = [{"const": value, "title": title} for value, title in pairs]
    return {word: output}


TitledItem = Annotated[
    str,
    WithJsonSchema(titled("anyOf", ("value1", "First"), ("value2", "Second"), ("value3", "Third"))),
]


class Contact(BaseModel):
    username: str = Field(description="User's response")
    email: str = Field(description="User's email address")


class Defaults(BaseModel):
    """SEP-1034: a default for each type of value."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


class Choices(BaseModel):
    """SEP-1330: each form of an enumeration."""

    untitled_single: Literal["option1", "option2", "option3"] = Field(alias="untitledSingle")
    titled_single: str = Field(
        alias="titledSingle",
        json_schema_extra=titled("oneOf", ("value1", "First"), ("value2", "Second"), ("value3", "Third")),
    )
    legacy_enum: Literal["opt1", "opt2", "opt3"] = Field(
        alias="legacyEnum", json_schema_extra={"enumNames": ["Option One", "Option Two", "Option Three"]}
    )
    untitled_multi: list[Literal["option1", "option2", "option3"]] = Field(alias="untitledMulti")
    titled_multi: list[TitledItem] = Field(alias="titledMulti")


class Name(BaseModel):
    name: str


class Color(BaseModel):
    color: str


class Confirmed(BaseModel):
    ok: bool


class Context(BaseModel):
    context: str


class Contents:
    """Every kind of content, and errors."""

    @tool(Effect.READ)
    def test_simple_text(self) -> str:
        """Say one line."""
        return "This is a simple text response for testing."

    @tool(Effect.READ)
    def test_image_content(self) -> Image:
        """Show a pixel."""
        return Image(PIXEL, "image/png")

    @tool(Effect.READ)
    def test_audio_content(self) -> Audio:
        """Play a silence."""
        return Audio(SILENCE, "audio/wav")

    @tool(Effect.READ)
    def test_embedded_resource(self) -> Embedded:
        """Give a resource with its content."""
        return Embedded("test://embedded-resource", "This is an embedded resource content.")

    @tool(Effect.READ)
    def test_multiple_content_types(self) -> list[Content]:
        """Give text, an image and a resource."""
        data = json.dumps({"test": "data", "value": 123})
        return [
            Text("Multiple content types test:"),
            Image(PIXEL, "image/png"),
            Embedded("test://mixed-content-resource", data, "application/json"),
        ]

    @tool(Effect.READ)
    def test_error_handling(self) -> str:
        """Fail."""
        raise Unsupported("This tool intentionally returns an error for testing")

    @raw_schema(SCHEMA_2020_12)
    @tool(Effect.READ)
    def json_schema_2020_12_tool(self, given: dict[str, Any]) -> str:
        """Take what a schema of many words allows."""
        return f"JSON Schema 2020-12 tool called with: {json.dumps(given)}"

    @tool(Effect.READ)
    def test_x_mcp_header(
        self,
        region: Annotated[
            str, Field(description="Also sent as a header", json_schema_extra={"x-mcp-header": "Region"})
        ] = "",
    ) -> str:
        """Take a parameter that stands in a header too."""
        return f"region: {region}"


class Conversation:
    """Progress, messages, and questions."""

    @tool(Effect.READ)
    async def test_tool_with_logging(self, call: Call) -> str:
        """Log three times."""
        for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await call.log("info", text)
        return "Tool with logging executed successfully"

    @tool(Effect.READ)
    async def test_logging_tool(self, call: Call) -> str:
        """Log once."""
        await call.log("info", "a line that only who asked for it should get")
        return "logged"

    @tool(Effect.READ)
    async def test_tool_with_progress(self, call: Call) -> str:
        """Report progress three times."""
        for done in (0, 50, 100):
            await call.progress(done, 100, f"Completed step {done} of 100")
            await pause(PAUSE_SECONDS)
        return "Tool with progress executed successfully"

    @tool(Effect.READ)
    async def test_reconnection(self, call: Call) -> str:
        """Close the stream in the middle: a client that resumes with Last-Event-ID gets the rest."""
        await call.log("info", "before the stream is closed")
        await call.close_stream()
        await call.log("info", "after the stream was closed")
        return "Reconnection test completed successfully"

    @asks("completion")
    @tool(Effect.READ)
    async def test_sampling(self, prompt: str, call: Call) -> str:
        """Ask the client's model."""
        answer = await call.ask(AskModel(key="completion", message=prompt, most_tokens=100))
        return f"LLM response: {answer}"

    @asks("contact")
    @tool(Effect.READ)
    async def test_elicitation(self, message: str, call: Call) -> str:
        """Ask the person for name and address."""
        answer = await call.ask(AskForm(key="contact", message=message, model=Contact))
        return f"User response: {answer.model_dump_json()}"

    @asks("defaults")
    @tool(Effect.READ)
    async def test_elicitation_sep1034_defaults(self, call: Call) -> str:
        """Ask with a default for each kind of value."""
        answer = await call.ask(AskForm(key="defaults", message="Please review and update", model=Defaults))
        return f"Elicitation completed: {answer.model_dump_json()}"

    @asks("choices")
    @tool(Effect.READ)
    async def test_elicitation_sep1330_enums(self, call: Call) -> str:
        """Ask for choices, in each form of an enumeration."""
        answer = await call.ask(AskForm(key="choices", message="Please select options", model=Choices))
        return f"Elicitation completed: {answer.model_dump_json()}"

    @tool(Effect.READ)
    async def test_missing_capability(self, call: Call) -> str:
        """Work only for clients with a model."""
        if not call.has_capability("sampling"):
            raise CapabilityMissing("sampling")
        return "the client offers sampling"

    @asks("approval")
    @tool(Effect.READ)
    async def test_streaming_elicitation(self, call: Call) -> str:
        """Ask in the middle of an answer."""
        await call.progress(1, 2, "asking")
        answer = await call.ask(AskForm(key="approval", message="Go on?", model=Confirmed))
        return f"ok: {answer.ok}"


class InputRequired:
    """Questions of the stateless revision (SEP-2322); in the others they are asked during the call."""

    @asks("user_name")
    @tool(Effect.READ)
    async def test_input_required_result_elicitation(self, call: Call) -> str:
        """Greet by name."""
        answer = await call.ask(AskForm(key="user_name", message="What is your name?", model=Name))
        return f"Hello, {answer.name}!"

    @asks("capital_question")
    @tool(Effect.READ)
    async def test_input_required_result_sampling(self, call: Call) -> str:
        """Ask the client's model for a capital."""
        question = "What is the capital of France?"
        return await call.ask(AskModel(key="capital_question", message=question, most_tokens=100))

    @asks("client_roots")
    @tool(Effect.READ)
    async def test_input_required_result_list_roots(self, call: Call) -> str:
        """Ask which directories the client works on."""
        roots = await call.ask(AskRoots(key="client_roots"))
        return " ".join(roots)

    @asks("confirm")
    @tool(Effect.READ)
    async def test_input_required_result_request_state(self, call: Call) -> str:
        """Ask once, with state."""
        await call.ask(AskForm(key="confirm", message="Please confirm", model=Confirmed))
        return "state-ok"

    @asks("user_name", "greeting", "client_roots")
    @tool(Effect.READ)
    async def test_input_required_result_multiple_inputs(self, call: Call) -> str:
        """Ask the person, the model and the client at once."""
        name, greeting, roots = await call.ask_all(
            AskForm(key="user_name", message="What is your name?", model=Name),
            AskModel(key="greeting", message="Generate a greeting", most_tokens=50),
            AskRoots(key="client_roots"),
        )
        return f"{greeting} {name.name} works on {' '.join(roots)}"

    @asks("step1", "step2")
    @tool(Effect.READ)
    async def test_input_required_result_multi_round(self, call: Call) -> str:
        """Ask, and ask again."""
        first = await call.ask(AskForm(key="step1", message="Step 1: What is your name?", model=Name))
        second = await call.ask(AskForm(key="step2", message="Step 2: What is your favorite color?", model=Color))
        return f"{first.name} likes {second.color}"

    @asks("confirm")
    @tool(Effect.READ)
    async def test_input_required_result_tampered_state(self, call: Call) -> str:
        """Ask for a confirmation: it holds for this call only."""
        agreed = await call.ask(AskConfirmation(key="confirm", message="Please confirm"))
        return f"confirmed: {agreed}"

    @asks("name")
    @tool(Effect.READ)
    async def test_input_required_result_capabilities(self, call: Call) -> str:
        """Ask whoever the client has: the person, or the model where it has only that."""
        return await call.ask(AskText(key="name", message="What is a good name for a cat?"))

    @asks("user_context")
    @prompt()
    async def test_input_required_result_prompt(self, call: Call) -> str:
        """A prompt that asks before it is given."""
        question = "What context should the prompt use?"
        answer = await call.ask(AskForm(key="user_context", message=question, model=Context))
        return f"Consider this context: {answer.context}"


class Resources:
    """Resources, fixed and by template."""

    @resource("test://static-text")
    def static_text(self) -> str:
        """A text."""
        return "This is the content of the static text resource."

    @resource("test://static-binary", mime_type="image/png")
    def static_binary(self) -> bytes:
        """A picture."""
        return PIXEL

    @resource("test://template/{id}/data", mime_type="application/json")
    def template_data(self, id: str) -> str:  # noqa: A002  # the name of the variable is the suite's
        """Data of an id."""
        return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})

    @resource("test://watched-resource")
    def watched_resource(self) -> str:
        """A text to subscribe to."""
        return "Watched resource content"


class Prompts:
    """Prompts with each kind of message."""

    @prompt()
    def test_simple_prompt(self) -> str:
        """A prompt of one message."""
        return "This is a simple prompt for testing."

    @prompt()
    def test_prompt_with_arguments(
        self,
        arg1: Annotated[str, Field(description="First test argument")],
        arg2: Annotated[str, Field(description="Second test argument")],
    ) -> str:
        """A prompt of two arguments."""
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @prompt()
    def test_prompt_with_embedded_resource(
        self,
        resourceUri: Annotated[str, Field(description="URI of the resource to embed")],  # noqa: N803  # the suite's
    ) -> list[Message]:
        """A prompt with a resource."""
        embedded = Embedded(resourceUri, "Embedded resource content for testing.")
        return [Message(embedded), Message(Text("Please process the embedded resource above."))]

    @prompt()
    def test_prompt_with_image(self) -> list[Message]:
        """A prompt with a picture."""
        return [Message(Image(PIXEL, "image/png")), Message(Text("Please analyze the image above."))]


class Changes:
    """Changes of the lists, caused by a call."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    @tool(Effect.CHANGE)
    def test_trigger_tool_change(self) -> str:
        """Add a tool, or take it away again."""
        return self._toggled(added_tool)

    @tool(Effect.CHANGE)
    def test_trigger_prompt_change(self) -> str:
        """Add a prompt, or take it away again."""
        return self._toggled(added_prompt)

    def _toggled(self, function: Any) -> str:
        if any(command.function is function for command in self._registry):
            self._registry.remove(function.__name__)
            return "taken away"
        self._registry.add(function)
        return "added"


@tool(Effect.READ)
def added_tool() -> str:
    """Be there for a while."""
    return "here"


@prompt()
def added_prompt() -> str:
    """Be there for a while."""
    return "here"


def registry() -> Registry:
    """Every fixture. A harmless tool is first: the suite calls the first one of the list."""
    commands = Registry()
    for holder in (Contents(), Conversation(), InputRequired(), Resources(), Prompts(), Changes(commands)):
        commands.add_set(type(holder).__name__.lower(), holder)
    return commands


FIXTURE = registry()
"""Served by `coretools-http --with tests.conformance.fixture:FIXTURE`."""
