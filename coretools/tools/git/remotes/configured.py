"""The remotes that a repository's configuration names, and the upstream of a branch.

Read for their URLs, refspecs and branches only: whatever else the configuration says about a remote has no effect.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from coretools.config.remote_urls import InvalidUrl, RemoteUrl
from coretools.errors import GitRefused, InvalidArguments, NotFound
from coretools.tools.git.reading.references import HEADS
from coretools.tools.git.remotes.references import Refspec, default_refspec, is_reference, parse_refspec
from coretools.tools.git.repository.open_repository import OpenRepository, require_success
from coretools.tools.git.repository.porcelain import as_text

_PATTERN = r"^(remote|branch|url)\.|^extensions\.partialclone$"


@dataclass(frozen=True, slots=True)
class ConfiguredRemote:
    """One remote of a repository. A URL without a remote has an empty name."""

    name: str
    urls: tuple[str, ...]
    push_urls: tuple[str, ...] = ()
    refspecs: tuple[Refspec, ...] = ()
    not_used: tuple[str, ...] = ()
    """Refspecs that would change more than tracking branches."""

    def url(self, *, push: bool) -> RemoteUrl:
        """Return the URL for a direction.

        Raises:
            GitRefused: there is none, more than one, or one that is not accepted.
        """
        urls = (self.push_urls if push else ()) or self.urls
        if len(urls) != 1:
            which = "no URL" if not urls else f"{len(urls)} URLs"
            raise GitRefused(f"remote {self.name}: has {which}; git_remote action='set-url' gives it one")
        try:
            return parsed_url(urls[0])
        except InvalidArguments as error:
            raise GitRefused(f"remote {self.name}: {error}") from error

    def tracking(self, reference: str) -> str:
        """Return the tracking reference for a reference of the remote, by its full name there; "" if there is none."""
        return next((name for refspec in self.refspecs if (name := refspec.destination_of(reference))), "")


@dataclass(frozen=True, slots=True)
class RemoteSettings:
    """What a repository's configuration says about remotes and upstreams."""

    remotes: Mapping[str, ConfiguredRemote]
    upstreams: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Remote, and full name there, by local branch."""
    rewrites: bool = False
    """Whether it rewrites URLs (`url.*.insteadOf`), which is ignored."""

    def remote(self, name: str) -> ConfiguredRemote:
        """Return the remote with a name, or for a URL.

        Raises:
            NotFound: neither. InvalidArguments: not a URL that is accepted.
        """
        if name in self.remotes:
            return self.remotes[name]
        if "/" not in name and ":" not in name:
            there = ", ".join(sorted(self.remotes)[:10]) or "none; git_remote action='add' adds one"
            raise NotFound(f"remote {name!r}: there is none (remotes: {there})")
        url = parsed_url(name)
        return next((one for one in self.remotes.values() if _leads_to(one, url)), ConfiguredRemote("", (url.text,)))

    def default(self, branch: str) -> str:
        """Return the name of the remote of a branch, or the usual one.

        Raises:
            NotFound: there is no remote, or several and none is the branch's own.
        """
        own = self.upstreams.get(branch, ("", ""))[0]
        if own in self.remotes:
            return own
        if "origin" in self.remotes or len(self.remotes) == 1:
            return "origin" if "origin" in self.remotes else next(iter(self.remotes))
        there = ", ".join(sorted(self.remotes)[:10]) or "none; git_remote action='add' adds one"
        raise NotFound(f"remote: name one (remotes: {there})")


async def remote_settings(repository: OpenRepository) -> RemoteSettings:
    """Read the configuration of a repository.

    Raises:
        GitRefused: it can't be read, or is that of a partial clone, whose objects come from a remote when needed.
    """
    words = ("config", "--local", "--includes", "-z", "--get-regexp", _PATTERN)
    completed = await repository.run(*words)
    if completed.exit_code == 1:  # git-config(1): no key matches
        return RemoteSettings({})
    require_success(completed, "config")
    return _settings(_values(repository.complete_output(completed, "config")))


def _values(output: bytes) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for record in output.split(b"\0"):
        name, _, value = record.partition(b"\n")
        values.setdefault(as_text(name), []).append(as_text(value))
    return values


def _settings(values: Mapping[str, list[str]]) -> RemoteSettings:
    if any(key == "extensions.partialclone" or key.endswith((".promisor", ".partialclonefilter")) for key in values):
        raise GitRefused("a partial clone gets objects from its remote when needed; use git itself for its remotes")
    named = dict.fromkeys(_middle(key) for key in values if key.startswith("remote.") and _middle(key))
    remotes = {remote: _configured(remote, values) for remote in named}
    rewrites = any(key.startswith("url.") for key in values)
    return RemoteSettings({one.name: one for one in remotes.values() if one.urls}, _upstreams(values), rewrites)


def _upstreams(values: Mapping[str, list[str]]) -> dict[str, tuple[str, str]]:
    merged = {_middle(key): texts[-1] for key, texts in values.items() if key.endswith(".merge")}
    return {branch: (values.get(f"branch.{branch}.remote", [""])[-1], name) for branch, name in merged.items()}


def parsed_url(text: str) -> RemoteUrl:
    """Return the URL that a caller or a configuration wrote.

    Raises:
        InvalidArguments: not one that is accepted.
    """
    try:
        return RemoteUrl.parse(text)
    except InvalidUrl as error:
        raise InvalidArguments(f"URL of a remote: {error}") from error


def checked_name(name: str) -> str:
    """Return the name of a remote if git would accept it.

    Raises:
        InvalidArguments: it would not.
    """
    if not name or name.startswith("-") or "/" in name or not is_reference(f"{HEADS}{name}") or not name.isprintable():
        raise InvalidArguments(f"remote {name[:80]!r}: not a name; use letters, digits, hyphens and underscores")
    return name


def _middle(key: str) -> str:
    return key.partition(".")[2].rpartition(".")[0]


def _configured(name: str, values: Mapping[str, list[str]]) -> ConfiguredRemote:
    written = values.get(f"remote.{name}.fetch", [])
    parsed = [(text, parse_refspec(text)) for text in written]
    refspecs = tuple(refspec for _, refspec in parsed if refspec is not None)
    return ConfiguredRemote(
        name=name,
        urls=tuple(values.get(f"remote.{name}.url", [])),
        push_urls=tuple(values.get(f"remote.{name}.pushurl", [])),
        refspecs=refspecs or ((default_refspec(name),) if is_reference(f"{HEADS}{name}") else ()),
        not_used=tuple(text for text, refspec in parsed if refspec is None),
    )


def _leads_to(remote: ConfiguredRemote, url: RemoteUrl) -> bool:
    try:
        return remote.url(push=False) == url
    except GitRefused:
        return False
