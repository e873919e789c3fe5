"""Results of the git tools, and their text."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Self

from pydantic import PrivateAttr

from coretools.operations.content import Result
from coretools.roots.editor_settings import new_settings_note
from coretools.roots.root_set import Roots
from coretools.tools.git.repository.checkout import Checkout, path_of
from coretools.tools.git.repository.porcelain import as_text, quoted, single_line
from coretools.truncation import and_more

MAX_LISTED = 10
"""Settings, hooks or files listed in a remark; the rest is counted."""

MAX_UNDO = 5
"""Most paths in a call that undoes a change."""

Hooked = Literal["", "commit", "push"]
"""What a call did for which plain git runs hooks: nothing, a change of commits or the work tree, or a push."""

_OF_A_PUSH = frozenset({"pre-push"})
_OF_OTHERS = frozenset(
    {"pre-receive", "update", "proc-receive", "post-receive", "post-update", "push-to-checkout", "sendemail-validate"}
    | {"applypatch-msg", "pre-applypatch", "post-applypatch", "fsmonitor-watchman", "pre-auto-gc"}
)
"""Hooks for what no git tool does."""

_WAYS = {
    "commit": "git tools run only hooks that the operator grants; `git commit` in run_command runs those of git commit",
    "push": "git_push runs none; `git hook run pre-push` in run_command does",
}


class TextResult(Result):
    """Text result of a git tool."""

    body: str
    details: dict[str, object]

    def text(self) -> str:
        """The text."""
        return self.body

    def facts(self) -> dict[str, object]:
        """Counts, object names, and the tier in which git was confined."""
        return self.details


class GitResult(Result):
    """Result of a git tool with fields of its own, and the text and facts that go with them."""

    _text: str = PrivateAttr("")
    _facts: dict[str, object] = PrivateAttr({})

    def text(self) -> str:
        """The text."""
        return self._text

    def facts(self) -> dict[str, object]:
        """Counts, and the tier in which git was confined."""
        return self._facts

    def with_text(self, lines: Iterable[str], facts: dict[str, object]) -> Self:
        """Return the result with these lines as its text."""
        self._text, self._facts = "\n".join(lines), facts
        return self

    def with_answer(self, checkout: Checkout, lines: Iterable[str], *, details: Mapping[str, object]) -> Self:
        """Return the result with text and facts like those of `answer`."""
        text = answer(checkout, lines, details=details)
        return self.with_text([text.body], text.details)


def answer(
    checkout: Checkout, lines: Iterable[str], *, details: Mapping[str, object], hooks: Hooked = ""
) -> TextResult:
    """Build a result, with remarks on what the repository requested and git did not do."""
    not_used = {"not_used": list(checkout.policy.not_used)} if checkout.policy.not_used else {}
    facts = {**details, **not_used, "tier": checkout.tier}
    return TextResult(body="\n".join((*lines, *remarks(checkout, hooks=hooks))), details=facts)


def remarks(checkout: Checkout, *, hooks: Hooked = "") -> list[str]:
    """Return one line for each kind of request of the repository that git did not follow."""
    sentences = []
    if checkout.policy.not_used:
        sentences.append(f"[settings of this repository that are not used: {listed(checkout.policy.not_used)}]")
    if checkout.policy.external_includes:
        sentences.append(
            "[included configuration outside the roots: only the names of its keys were checked; it is not used]"
        )
    if hooks and (names := _skipped_hooks(checkout, hooks)):
        sentences.append(f"[hooks that did not run: {listed(names)}; {_WAYS[hooks]}]")
    return sentences + settings_remark(checkout)


def _skipped_hooks(checkout: Checkout, hooks: Hooked) -> list[str]:
    """Return the hooks that plain git would have run, without those that were granted."""
    if any(key.lower() == "core.hookspath" for key in checkout.policy.not_used):
        return ["those of core.hooksPath"]
    if hooks == "push":
        return [name for name in checkout.hooks if name in _OF_A_PUSH]
    return [name for name in checkout.hooks if name not in _OF_A_PUSH | _OF_OTHERS]


def settings_remark(checkout: Checkout) -> list[str]:
    """Return a line that names the settings of editors and agents that the call created or changed; usually none."""
    before = checkout.settings
    return settings_line(before.roots, before.changed()) if before else []


def settings_line(roots: Roots, settings: Sequence[str]) -> list[str]:
    """Return a line about settings that a call created or changed, if there are any."""
    return [f"[{new_settings_note(roots, [listed(settings)])}]"] if settings else []


def listed(names: Sequence[str]) -> str:
    """Join the first names in one line and count the rest."""
    return and_more(map(single_line, names[:MAX_LISTED]), len(names))


def undo_by_reset(before: str, mode: str) -> str:
    """Return the call that takes the newest commits away. It names a commit, so it is wrong once more are made."""
    return (
        f"Undo: git_reset revision={before!r} mode={mode!r} (only while this is the newest commit: later ones go too)"
    )


def paths_argument(checkout: Checkout, names: Sequence[bytes]) -> str:
    """Return the argument `paths` of a call that undoes a change of these names."""
    more = f" and the other {len(names) - MAX_UNDO}" if len(names) > MAX_UNDO else ""
    return f"paths={[as_text(path_of(checkout, name)) for name in names[:MAX_UNDO]]!r}{more}"


def hidden_line(checkout: Checkout, what: str, reasons: Mapping[bytes, str]) -> str:
    """Return a line with the hidden files and the reasons."""
    files = [f"{quoted(path_of(checkout, name))} ({reason})" for name, reason in reasons.items()]
    return f"[{what}, hidden: {listed(files)}]"
