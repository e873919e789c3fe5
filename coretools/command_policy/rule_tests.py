"""Check the tests that rules of the policy file carry: commands that a rule must match, and must not match."""

from collections.abc import Iterator

from coretools.command_policy.rules import covers
from coretools.command_policy.shell_lines.parse import needs_shell, parse_line
from coretools.command_policy.subcommand import Subcommand
from coretools.command_policy.unwrap import unwrap
from coretools.config.operator_policy import CommandPolicy, CommandRule, CommandText
from coretools.errors import BadSetting, CommandSyntax
from coretools.shell_words import split


def check_rule_tests(commands: CommandPolicy, source: str | None) -> None:
    """Refuse a policy with a rule that fails a test of its own.

    Raises:
        BadSetting: names the file, each such rule, and the command.
    """
    wrong = [
        f"commands.rule #{number}.{fault}" for number, rule in enumerate(commands.rule, 1) for fault in _faults(rule)
    ]
    if wrong:
        raise BadSetting(f"{source or 'policy'}: {'; '.join(wrong)}; change the rule or its test")


def _faults(rule: CommandRule) -> Iterator[str]:
    for key, commands, expected in (("match", rule.match, True), ("not_match", rule.not_match, False)):
        for command in commands:
            try:
                is_match = _matches(rule, command)
            except CommandSyntax as error:
                yield f"{key}: {command!r}: {error}"
                continue
            if is_match != expected:
                yield f"{key}: {command!r} is {'not ' if expected else ''}matched by the rule"


def _matches(rule: CommandRule, command: CommandText) -> bool:
    """Whether the rule matches anything that a command starts.

    Raises:
        CommandSyntax: a line that can't be read.
    """
    programs = (program.subcommand for first in _commands(command) for program in unwrap(first).programs)
    return any(covers(rule, program) for program in programs if rule.verdict != "allow" or not program.is_guess)


def _commands(command: CommandText) -> Iterator[Subcommand]:
    if not isinstance(command, str):
        if command:
            yield Subcommand(command, "")
    elif not needs_shell(command):
        yield Subcommand(tuple(split(command)), "")
    else:
        for simple in parse_line(command).commands:
            known = simple.known_argv
            if known:
                yield Subcommand(known, "", has_unseen_words=not simple.is_literal)
