"""coretools: filesystem, git and CI tools for agents and pipelines, behind one MCP server; and the library for others.

The names in `PUBLIC_NAMES` can be imported from here (docs/specs/application.md). Each is loaded when it is first used:
most programs that import the package need few of them. Their types are in `__init__.pyi`.
"""

import importlib
from typing import Any

PUBLIC_NAMES = {
    "open_workspace": "coretools.app.command_sandbox",
    "App": "coretools.application.app",
    "check_cancelled": "coretools.cancellation",
    "Asking": "coretools.config.settings",
    "AlreadyExists": "coretools.errors",
    "AnswerNeeded": "coretools.errors",
    "BadSetting": "coretools.errors",
    "Busy": "coretools.errors",
    "CannotStart": "coretools.errors",
    "CommandSyntax": "coretools.errors",
    "Conflict": "coretools.errors",
    "CoreError": "coretools.errors",
    "DeadlinePassed": "coretools.errors",
    "Declined": "coretools.errors",
    "DeniedCommand": "coretools.errors",
    "DeniedPath": "coretools.errors",
    "InvalidArguments": "coretools.errors",
    "NotFound": "coretools.errors",
    "NotText": "coretools.errors",
    "OutsideRoot": "coretools.errors",
    "PermissionRefused": "coretools.errors",
    "ReadOnly": "coretools.errors",
    "TooLarge": "coretools.errors",
    "Unconfined": "coretools.errors",
    "Unreachable": "coretools.errors",
    "Unsupported": "coretools.errors",
    "WrongType": "coretools.errors",
    "HttpOptions": "coretools.hosting.serve",
    "AgentContext": "coretools.operations.agent_tools",
    "AgentStep": "coretools.operations.agent_tools",
    "Takes": "coretools.operations.agent_tools",
    "agent_tool": "coretools.operations.agent_tools",
    "Call": "coretools.operations.call",
    "Principal": "coretools.operations.call",
    "SilentCall": "coretools.operations.call",
    "Completes": "coretools.operations.completion",
    "Audio": "coretools.operations.content",
    "Embedded": "coretools.operations.content",
    "Image": "coretools.operations.content",
    "Link": "coretools.operations.content",
    "Message": "coretools.operations.content",
    "Result": "coretools.operations.content",
    "Text": "coretools.operations.content",
    "Aliases": "coretools.operations.declare",
    "Channel": "coretools.operations.declare",
    "Effect": "coretools.operations.declare",
    "asks": "coretools.operations.declare",
    "at": "coretools.operations.declare",
    "channels": "coretools.operations.declare",
    "details": "coretools.operations.declare",
    "hidden": "coretools.operations.declare",
    "metadata": "coretools.operations.declare",
    "prompt": "coretools.operations.declare",
    "resource": "coretools.operations.declare",
    "tool": "coretools.operations.declare",
    "MemoryServices": "coretools.services.memory",
    "ServiceLimits": "coretools.services.limits",
    "Icon": "coretools.operations.server_info",
    "QueueCounts": "coretools.services.interface",
    "Queues": "coretools.services.interface",
    "Services": "coretools.services.interface",
    "Subscription": "coretools.services.interface",
    "Topics": "coretools.services.interface",
    "Values": "coretools.services.interface",
    "open_services": "coretools.services.connect",
    "WorkItem": "coretools.services.interface",
    "dead_letters": "coretools.services.interface",
    "SessionState": "coretools.operations.session_state",
    "Completed": "coretools.process.run",
    "View": "coretools.protocol.mcp_apps",
    "Views": "coretools.protocol.mcp_apps",
    "AskChoice": "coretools.questions.kinds",
    "AskChoices": "coretools.questions.kinds",
    "AskConfirmation": "coretools.questions.kinds",
    "AskForm": "coretools.questions.kinds",
    "AskModel": "coretools.questions.kinds",
    "AskRoots": "coretools.questions.kinds",
    "AskSecret": "coretools.questions.kinds",
    "AskText": "coretools.questions.kinds",
    "Question": "coretools.questions.kinds",
    "DirectoryEntry": "coretools.roots.directory_listing",
    "join_command_line": "coretools.shell_words",
    "split_command_line": "coretools.shell_words",
    "Workspace": "coretools.tools.commands.workspace",
    "Excerpt": "coretools.truncation",
}
"""Every public name, and the module that defines it."""


def __getattr__(name: str) -> Any:
    """Load a public name.

    Raises:
        AttributeError: there is none of this name.
    """
    if name not in PUBLIC_NAMES:
        raise AttributeError(f"module 'coretools' has no attribute {name!r}")
    value = getattr(importlib.import_module(PUBLIC_NAMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, also those that are not loaded yet."""
    return sorted({*globals(), *PUBLIC_NAMES})
