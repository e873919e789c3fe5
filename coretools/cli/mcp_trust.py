"""`coretools mcp trust`: approve what files of the project start, after showing it."""

from coretools.cli.call import CliCall
from coretools.cli.mcp_line import Line
from coretools.cli.mcp_output import in_line, visible
from coretools.cli.terminal import print_error
from coretools.client.configuration import ServerEntry
from coretools.client.decisions import server_digest
from coretools.client.errors import NotTrusted
from coretools.questions.kinds import AskConfirmation
from coretools.redaction.argv import redacted_command_line


async def trust(line: Line) -> int:
    """Approve entries of the project, after showing what they start."""
    chosen = [line.entry(word) for word in line.options.words] or list(line.configuration.effective)
    new = [one for one in chosen if one.settings is not None and not line.is_trusted(one)]
    for entry in new:
        print_error(visible(_summary(entry)))
        if not line.options.yes:
            question = AskConfirmation(key="trust", message=f"Start {in_line(entry.name)} when it is used?")
            if not line.terminal.can_ask:
                raise NotTrusted("nobody can be asked here; look at the entries above and give --yes")
            if not await CliCall(line.terminal).ask(question):
                continue
        line.decisions.add(
            "trusted_servers", {server_digest(entry, line.environment): f"{entry.name} in {entry.place.path}"}
        )
        print_error(f"trusted: {in_line(entry.name)}")
    if not new:
        print_error("nothing to approve: every usable entry is trusted")
    return 0


def _summary(entry: ServerEntry) -> str:
    """Say what an entry starts, before its variables are replaced and without its secrets."""
    settings = entry.settings
    if settings is None:
        return f"{entry.name}: {entry.error}"
    lines = [f"{entry.name}, from {entry.place.path}:"]
    if settings.transport == "stdio":
        lines.append(f"  runs {redacted_command_line([settings.command or '', *settings.args])}")
        lines += [f"  in {settings.cwd}"] if settings.cwd else []
        lines += [f"  with the variables {', '.join(settings.env)}"] if settings.env else []
        lines += [f"  and those of {settings.env_file}"] if settings.env_file else []
    else:
        lines.append(f"  connects to {redacted_command_line([settings.address])}")
        lines += [f"  with the headers {', '.join(settings.headers)}"] if settings.headers else []
    return "\n".join(lines)
