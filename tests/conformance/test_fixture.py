"""What the suite does not verify: that each fixture exists and does what the suite's texts require."""

import json
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp_types import CallToolResult, TextContent

from tests.conformance.conftest import Served
from tests.conformance.fixture import SCHEMA_2020_12

ERAS = ("legacy", "auto")

TOOLS = {
    *("test_simple_text", "test_image_content", "test_audio_content", "test_embedded_resource"),
    *("test_multiple_content_types", "test_tool_with_logging", "test_tool_with_progress", "test_error_handling"),
    *("test_sampling", "test_elicitation", "test_elicitation_sep1034_defaults", "test_elicitation_sep1330_enums"),
    *("json_schema_2020_12_tool", "test_reconnection", "test_x_mcp_header", "test_missing_capability"),
    *("test_streaming_elicitation", "test_logging_tool", "test_trigger_tool_change", "test_trigger_prompt_change"),
    *("test_input_required_result_elicitation", "test_input_required_result_sampling"),
    *("test_input_required_result_list_roots", "test_input_required_result_request_state"),
    *("test_input_required_result_multiple_inputs", "test_input_required_result_multi_round"),
    *("test_input_required_result_tampered_state", "test_input_required_result_capabilities"),
}
RESOURCES = {"test://static-text", "test://static-binary", "test://watched-resource"}
PROMPTS = {
    *("test_simple_prompt", "test_prompt_with_arguments", "test_prompt_with_embedded_resource"),
    *("test_prompt_with_image", "test_input_required_result_prompt"),
}

REVISION = "2026-07-28"
META = "io.modelcontextprotocol/"


@dataclass(frozen=True)
class Answer:
    """The response to one request of the stateless revision: its messages, the result last."""

    status: int
    messages: tuple[dict[str, Any], ...]

    @property
    def result(self) -> dict[str, Any]:
        result: dict[str, Any] = self.messages[-1]["result"]
        return result


def post(served: Served, tool: str, *, meta: dict[str, Any] | None = None, **params: Any) -> Answer:
    """A hand-written call: the request that the suite sends, correct or not."""
    envelope = {
        META + "protocolVersion": REVISION,
        META + "clientInfo": {"name": "by hand", "version": "1"},
        META + "clientCapabilities": {"elicitation": {}},
        **(meta or {}),
    }
    call = {"name": tool, "arguments": {}, "_meta": envelope, **params}
    body = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call}).encode()
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": REVISION,
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    response = httpx2.post(served.url, content=body, headers=headers, timeout=30)
    if response.headers["Content-Type"].startswith("application/json"):
        return Answer(response.status_code, (response.json(),))
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    return Answer(response.status_code, tuple(json.loads(line) for line in lines))


def accepted(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


def text_of(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


@pytest.mark.parametrize("mode", ERAS)
async def test_every_fixture_is_listed(served: Served, mode: str) -> None:
    """interoperability-7: a tick for a missing one would prove nothing."""
    async with Client(served.url, mode=mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        resources = {resource.uri for resource in (await client.list_resources()).resources}
        templates = {template.uri_template for template in (await client.list_resource_templates()).resource_templates}
        prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
    assert set(tools) - {"added_tool"} == TOOLS
    assert next(iter(tools)) == "test_simple_text"
    assert tools["json_schema_2020_12_tool"].input_schema == SCHEMA_2020_12
    assert tools["test_x_mcp_header"].input_schema["properties"]["region"]["x-mcp-header"] == "Region"
    assert resources == RESOURCES
    assert templates == {"test://template/{id}/data"}
    assert prompts - {"added_prompt"} == PROMPTS


@pytest.mark.parametrize("mode", ERAS)
async def test_the_simple_tool_answers_and_the_failing_one_fails(served: Served, mode: str) -> None:
    """interoperability-7: `tools-call-simple-text` accepts any text, `tools-call-error` any error."""
    async with Client(served.url, mode=mode) as client:
        simple = await client.call_tool("test_simple_text", {})
        failing = await client.call_tool("test_error_handling", {})
    assert (simple.is_error, text_of(simple)) == (False, "This is a simple text response for testing.")
    assert (failing.is_error, text_of(failing)) == (True, "This tool intentionally returns an error for testing")


QUESTION = "test_input_required_result_elicitation"


def test_a_question_with_an_answer_to_another_is_asked_again(served: Served) -> None:
    """interoperability-7: `input-required-result-missing-input-response` accepts any result that is no answer."""
    first = post(served, QUESTION).result
    assert first["resultType"] == "input_required"
    assert set(first["inputRequests"]) == {"user_name"}
    wrong = post(
        served, QUESTION, inputResponses={"wrong_key": accepted(name="Alice")}, requestState=first["requestState"]
    )
    assert wrong.result["resultType"] == "input_required"
    assert set(wrong.result["inputRequests"]) == {"user_name"}


def test_unrequested_answers_are_ignored(served: Served) -> None:
    """interoperability-7: `input-required-result-ignore-extra-params` does not check the greeting."""
    output = {"user_name": accepted(name="Alice"), "another": accepted(foo="bar")}
    assert post(served, QUESTION, inputResponses=output).result["content"][0]["text"] == "Hello, Alice!"


@pytest.mark.parametrize("response", [12345, None, {}, accepted(), accepted(name=5)])
def test_an_invalid_answer_does_not_complete_the_call(served: Served, response: object) -> None:
    """interoperability-7: `input-required-result-validate-input` accepts a tool error as a refusal."""
    first = post(served, QUESTION).result
    answer = post(served, QUESTION, inputResponses={"user_name": response}, requestState=first["requestState"])
    if answer.status == 400:
        assert answer.messages[-1]["error"]["code"] == -32602
    else:
        assert answer.result["resultType"] == "input_required"
        assert set(answer.result["inputRequests"]) == {"user_name"}


def test_a_tool_that_streams_asks_with_its_result(served: Served) -> None:
    """interoperability-7: `server-stateless` wants no request on the stream, which holds for an error too."""
    answer = post(served, "test_streaming_elicitation", meta={"progressToken": "p"})
    assert [message.get("method") for message in answer.messages] == ["notifications/progress", None]
    assert answer.result["resultType"] == "input_required"
    assert answer.result["inputRequests"]["approval"]["method"] == "elicitation/create"


@pytest.mark.parametrize(("level", "heard"), [(None, 0), ("info", 1), ("error", 0)])
def test_logs_are_sent_if_requested(served: Served, level: str | None, heard: int) -> None:
    """interoperability-7: `server-stateless` wants no unrequested logs, which a tool without logs passes too."""
    answer = post(served, "test_logging_tool", meta={META + "logLevel": level} if level else {})
    assert [message.get("method") for message in answer.messages] == [*["notifications/message"] * heard, None]
    assert answer.result["content"][0]["text"] == "logged"
