"""Decide whether a remote may be reached, ask where the operator wants that, and connect to it.

The policy file alone decides. A repository chooses a URL at most, which is compared with the rules before anything is
started or looked up.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from coretools.config.remote_policy import Direction, RemoteRule, matching_rule, required_key
from coretools.config.remote_urls import RemoteUrl
from coretools.errors import AnswerNeeded, CapabilityMissing, DeniedRemote
from coretools.git_remotes.exchange import Transport
from coretools.operations.call import LOCAL, Call, require_confirmation
from coretools.questions.kinds import AskConfirmation
from coretools.tools.git.remotes.connected_git import Connected
from coretools.tools.git.remotes.local_remote import local_transport
from coretools.tools.git.repository.open_repository import Git
from coretools.tools.git.repository.porcelain import single_line

CONFIRM = "remote"
"""The key of the question."""


class RemoteAccess:
    """The rules of one server, and what its connections need."""

    def __init__(self, rules: Sequence[RemoteRule], git: Git, *, environment: Mapping[str, str]) -> None:
        """`environment` is the server's own, with tokens and the user's ssh agent."""
        self._rules = rules
        self._git = git
        self._environment = environment

    def rule_for(self, url: RemoteUrl, direction: Direction, *, principal: str) -> RemoteRule:
        """Return the rule that permits to use a remote.

        Raises:
            DeniedRemote: none does; names the key that would.
        """
        rule = matching_rule(self._rules, url)
        if rule is None or not rule.allows(direction):
            kind = "a push to " if direction == "push" else ""
            reason = "no rule allows it" if rule is None else f"the rule for {rule.url} only allows fetch"
            key = required_key(url, direction) if rule is None else "push = true"
            raise DeniedRemote(
                f"{kind}{single_line(url.text)} is not allowed: {reason}; in the policy file the operator allows it"
                f" with\n{key}",
                url=url.text,
            )
        if principal != LOCAL and not rule.principals:
            raise DeniedRemote(
                f"{single_line(url.text)} is allowed only to the user who started the server; the operator allows it to"
                " callers with a token with principals = true in its [[remote]]",
                url=url.text,
            )
        return rule

    def state(self, url: RemoteUrl) -> str:
        """Return in a few words what the policy permits."""
        rule = matching_rule(self._rules, url)
        if rule is None:
            return "not allowed by the policy"
        return "fetch and push allowed" if rule.push else "fetch allowed"

    async def ask(self, rule: RemoteRule, direction: Direction, call: Call, message: str) -> None:
        """Ask a person, if the operator wants that for this direction. Comes before any change.

        Raises:
            Declined: the person declined. DeniedRemote: nobody can be asked.
        """
        if direction not in rule.ask:
            return
        question = AskConfirmation(key=CONFIRM, message=message, is_for_operator=True)
        try:
            await require_confirmation(call, question)
        except (AnswerNeeded, CapabilityMissing) as error:
            raise DeniedRemote(
                f'the operator wants a person to confirm each {direction} (ask = ["{direction}"]), and nobody can be'
                f" asked here: {error}"
            ) from error

    @asynccontextmanager
    async def connected(self, url: RemoteUrl, rule: RemoteRule, direction: Direction) -> AsyncIterator[Connected]:
        """Prepare the way to a remote that a rule permits."""
        async with AsyncExitStack() as stack:
            if url.scheme == "path":
                local = local_transport(self._git, url, self._rules, direction)
                yield Connected(url, rule, await stack.enter_async_context(local))
            elif url.scheme == "git":
                yield Connected(url, rule, self._daemon(url, rule))
            elif url.scheme == "ssh":
                yield Connected(url, rule, self._over_ssh(url, rule))
            else:
                yield await self._over_http(url, rule)

    def _daemon(self, url: RemoteUrl, rule: RemoteRule) -> Transport:
        # Imported here, as below: most servers have no rule for such a remote.
        from coretools.egress.connector import Connector
        from coretools.git_remotes.git_daemon import GitDaemon

        return GitDaemon(url, Connector(rule.hosts(url)), limit_bytes=self._git.limits.transfer_bytes)

    def _over_ssh(self, url: RemoteUrl, rule: RemoteRule) -> Transport:
        from coretools.git_remotes.ssh import SshTransport

        agent = self._environment.get("SSH_AUTH_SOCK", "") if rule.credentials == "agent" else ""
        return SshTransport(url, rule, self._git.runner, self._git.confined, limits=self._git.limits, agent=agent)

    async def _over_http(self, url: RemoteUrl, rule: RemoteRule) -> Connected:
        from coretools.egress.connector import Connector
        from coretools.git_remotes.credentials import authorization_for
        from coretools.git_remotes.smart_http import SmartHttp

        authorization = await authorization_for(rule, url, self._git.runner, self._git.confined, self._environment)
        transport = SmartHttp(
            url,
            Connector(rule.hosts(url)),
            authorization=authorization.header,
            authorities=rule.ca_file,
            limits=self._git.limits,
            accepts=lambda other: matching_rule(self._rules, other) is rule,
        )
        return Connected(url, rule, transport, authorization.secrets)
