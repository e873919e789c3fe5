"""`coretools policy`: explain which rule decides about a command, and check the operator's policy file.

Starts no server and runs no command.
"""

import json
from collections.abc import Iterator, Sequence

from coretools.cli.common.terminal import print_text
from coretools.command_policy.line_verdict import LineDecision, judge_line
from coretools.command_policy.shell_lines.parse import needs_shell
from coretools.command_policy.unwrap import readers_of
from coretools.command_policy.verdict import Decision, ProgramPolicy, Step, display_argv, rule_lines
from coretools.config.operator_policy import CatalogPolicy, CommandPolicy, OperatorPolicy, network_text
from coretools.egress.allow_list import AllowList
from coretools.process.environment import NAMES
from coretools.shell_words import split

REFUSED = 77
"""EX_NOPERM (sysexits.h): for `deny`, and for `ask`, because a script would otherwise go on without a confirmation."""

ASKS = "run_command asks a person first, by a form of the client or at the terminal; other tools refuse the command"
NOT_TRUSTED = "a confirmation that an agent sends in `answers` does not count"
TRUSTED = "a confirmation in `answers` counts, because [tools] trusts_answers is true"


def explain(policy: OperatorPolicy, argv: Sequence[str], *, as_json: bool) -> int:
    """Print the verdict on a command, every step of the decision, and the decisive one.

    A single word is a line, as `run_command` takes it: with shell syntax each of its programs is listed.

    Returns:
        0 for `allow`, else 77.

    Raises:
        InvalidArguments: the argv is empty. CommandSyntax: the line can't be read.
    """
    programs = ProgramPolicy(policy.commands, source=policy.source)
    if len(argv) == 1 and needs_shell(argv[0]):
        line = judge_line(programs, argv[0], inherited=NAMES.union(policy.environment_pass))
        print_text(
            json.dumps(_line_facts(policy, line), indent=2) if as_json else "\n".join(_line_report(policy, line))
        )
        return 0 if line.verdict == "allow" else REFUSED
    decision = programs.decide(split(argv[0]) if len(argv) == 1 else argv)
    print_text(json.dumps(_facts(policy, decision), indent=2) if as_json else "\n".join(_report(policy, decision)))
    return 0 if decision.verdict == "allow" else REFUSED


def check(policy: OperatorPolicy) -> int:
    """Print a summary of a valid policy file, with notes on what it does not do. Always returns 0.

    Raises:
        BadSetting: a rule fails a test of its own.
    """
    commands = policy.commands
    ProgramPolicy(commands, source=policy.source)  # tests the rules
    name = policy.source or "no policy file; these are the defaults"
    rules, network = len(commands.rule), network_text(policy.confinement.network)
    opaque = commands.opaque or f"{commands.default} (as default)"
    lines = [f"{name}: {rules} rules, default {commands.default}, opaque {opaque}, network {network}"]
    if not isinstance(policy.confinement.network, str):
        hosts = AllowList.parse(policy.confinement.network).hosts()
        lines.append(f"in tier full commands reach {', '.join(hosts)}; in tier landlock they have no network")
    if policy.confinement.expose:
        ports = ", ".join(map(str, policy.confinement.expose))
        lines.append(f"a server of a command is reached on localhost at port {ports}")
    if policy.tools.ask:
        lines.append(f"a person confirms each call of {', '.join(policy.tools.ask)}")
    lines += _git_lines(policy)
    lines += _selection_lines(policy.catalog)
    if policy.tools.ask or policy.catalog != CatalogPolicy():
        lines.append("note: whether commands with these names exist is checked when a server starts")
    lines += [f"note: {note}" for note in _notes(commands)]
    if policy.tools.trusts_answers:
        lines.append("note: trusts_answers lets an agent confirm in place of the person")
    lines.append(
        "a server that runs takes changes of the file over when it is restarted; coretools-http also at a SIGHUP"
    )
    return print_text("\n".join(lines))


def _git_lines(policy: OperatorPolicy) -> Iterator[str]:
    """Return which remotes the git tools reach, and what repositories may run."""
    for rule in policy.remote:
        asked = f"; each {' and '.join(rule.ask)} needs confirmation" if rule.ask else ""
        yield f"the git tools {'fetch from and push to' if rule.push else 'fetch from'} {rule.url}{asked}"
    for root, grants in policy.git_grants.items():
        names = [*grants.hooks, *grants.filters, *grants.merge_drivers, *(["signatures"] if grants.signing else [])]
        if names:
            yield f"git runs in {root}: {', '.join(names)}"


def _selection_lines(selection: CatalogPolicy) -> list[str]:
    """Return which commands the file keeps, and which surfaces it adds."""
    switches = ("promote_read_only", "resources_as_tools", "prompts_as_tools")
    kept = [f"of the sets {', '.join(selection.sets)}"] if selection.sets else []
    kept += [f"only {', '.join(selection.only)}"] if selection.only != CatalogPolicy().only else []
    kept += [f"without {', '.join(selection.without)}"] if selection.without else []
    added = [name for name in switches if getattr(selection, name)]
    return [*([f"offered: {'; '.join(kept)}"] if kept else []), *([f"turned on: {', '.join(added)}"] if added else [])]


def _report(policy: OperatorPolicy, decision: Decision) -> list[str]:
    decisive = decision.decisive
    lines = [f"{decision.verdict}: {display_argv(decision.argv)}", f"because {decisive.reason}"]
    if decisive.chain:
        lines.append(f"reached through {' -> '.join(decisive.chain)}")
    lines += ["", "evaluated, outermost first:"]
    for step in decision.steps:
        mark = ">" if step is decisive else " "
        lines.append(f"{mark} {step.verdict:<5}  {'  ' * len(step.chain)}{display_argv(step.argv)}: {step.reason}")
    return [*lines, *_ending(policy, decision)]


def _ending(policy: OperatorPolicy, decision: Decision) -> list[str]:
    """Return who confirms the command, which file holds the policy, and how to allow it."""
    lines: list[str] = []
    if decision.verdict == "ask":
        lines += ["", ASKS, TRUSTED if policy.tools.trusts_answers else NOT_TRUSTED]
    lines += ["", f"policy: {policy.source or 'none; these are the defaults'}"]
    if _may_be_allowed(decision.decisive):
        lines += ["", "to allow exactly this, add:", rule_lines(decision.decisive)]
    return lines


def _line_report(policy: OperatorPolicy, line: LineDecision) -> list[str]:
    decisive = line.decision.decisive
    lines = [f"{line.verdict}: {display_argv(line.decision.argv)}", f"because {decisive.reason}", ""]
    lines.append(f"programs, in order: {len(line.programs)}")
    for program in line.programs:
        lines.append(f"  {program.verdict:<5}  {display_argv(program.argv)}: {program.decisive.reason}")
        lines += [
            f"  {step.verdict:<5}    {'  ' * len(step.chain)}{display_argv(step.argv)}: {step.reason}"
            for step in program.steps
            if step.chain
        ]
    if line.opaque:
        lines += ["", "opaque pieces:"]
        lines += [f"  {step.verdict:<5}  {display_argv(step.argv)}: {step.reason}" for step in line.opaque]
    return [*lines, *_ending(policy, line.decision)]


def _line_facts(policy: OperatorPolicy, line: LineDecision) -> dict[str, object]:
    facts = _facts(policy, line.decision)
    del facts["argv"], facts["steps"]
    programs = [
        {"position": command.start, **_decision_facts(program)}
        for command, program in zip(line.parsed.commands, line.programs, strict=True)
    ]
    opaque = [{"text": step.argv[0], "verdict": step.verdict, "because": step.reason} for step in line.opaque]
    return {"line": line.parsed.line, **facts, "programs": programs, "opaque": opaque}


def _facts(policy: OperatorPolicy, decision: Decision) -> dict[str, object]:
    decisive = decision.decisive
    allow_with = rule_lines(decisive) if _may_be_allowed(decisive) else None
    return {**_decision_facts(decision), "policy": policy.source, "allow_with": allow_with}


def _decision_facts(decision: Decision) -> dict[str, object]:
    decisive = decision.decisive
    return {
        "verdict": decision.verdict,
        "argv": decision.argv,
        "rule": decisive.rule,
        "because": decisive.reason,
        "steps": [
            {
                "argv": step.argv,
                "through": step.chain,
                "verdict": step.verdict,
                "rule": step.rule,
                "because": step.reason,
                "decides": step is decisive,
            }
            for step in decision.steps
        ],
    }


def _may_be_allowed(step: Step) -> bool:
    return step.is_nameable and (step.verdict == "ask" or (step.verdict == "deny" and step.rule is None))


def _notes(commands: CommandPolicy) -> list[str]:
    notes = []
    refuses = any(rule.verdict != "allow" for rule in commands.rule)
    if refuses and (commands.opaque or commands.default) == "allow":
        notes.append(
            "rules refuse programs, but code that can't be judged is allowed: `sh -c`, `python -c` and scripts reach"
            ' past them; write opaque = "deny" or "ask" under [commands]'
        )
    for number, rule in enumerate(commands.rule, 1):
        if rule.verdict == "allow" and rule.arguments is None and "*" not in rule.program and readers_of(rule.program):
            notes.append(
                f"rule {number} allows {rule.program}, but not the code or programs that its words may start;"
                " name those in `arguments`, or in rules of their own"
            )
    return notes
