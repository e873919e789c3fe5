"""What a tool returns: a model that can say itself in compact text.

The text is for the model behind the client; the fields are for programs. A surface decides which of the two goes out,
and never sends the same payload twice.
"""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Result(BaseModel):
    """Base of every tool result. Subclasses are frozen and say themselves through `text`; without it as JSON."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    def text(self) -> str:
        """The result for a reader, without decoration: its fields as JSON, unless a subclass knows better."""
        return self.model_dump_json()

    @property
    def failed(self) -> bool:
        """Whether the thing that was run failed (a test, a build, a command). The call itself worked."""
        return False

    def facts(self) -> dict[str, object]:
        """Small JSON values for programs that are not worth a schema (exit code, duration); sent as metadata."""
        return {}
