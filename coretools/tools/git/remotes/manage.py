"""The list of remotes of a repository: show, add, rename, remove, and change the URL of one."""

from coretools.config.remote_urls import RemoteUrl
from coretools.errors import AlreadyExists, DeniedRemote, InvalidArguments, NotFound
from coretools.tools.answer_budget import cut_line, fitting
from coretools.tools.git.remotes.access import RemoteAccess
from coretools.tools.git.remotes.configured import ConfiguredRemote, RemoteSettings, checked_name, parsed_url
from coretools.tools.git.remotes.references import TRACKING
from coretools.tools.git.remotes.transfer import local_references
from coretools.tools.git.repository.open_repository import OpenRepository
from coretools.tools.git.repository.porcelain import single_line
from coretools.tools.git.repository.results import TextResult, answer


async def list_remotes(repository: OpenRepository, settings: RemoteSettings, access: RemoteAccess) -> TextResult:
    """List the remotes with their URLs, without credentials, and what the policy permits."""
    lines = []
    for remote in settings.remotes.values():
        lines += [f"{remote.name} {line}" for line in _described(remote, access)]
        lines += [f"{remote.name} refspec that is not used: {text}" for text in remote.not_used]
    tracked = [f"{name} -> {to}/{at.removeprefix('refs/heads/')}" for name, (to, at) in settings.upstreams.items()]
    lines += [f"branch {line}" for line in tracked]
    if settings.rewrites:
        lines.append("[url.*.insteadOf of this repository is not used]")
    shown = fitting((cut_line(single_line(line)) for line in lines), repository.git.answer_bytes)
    rest = [f"[{len(lines) - len(shown)} more lines]"] if len(lines) > len(shown) else []
    names = list(settings.remotes)[:100]
    return answer(repository.checkout, [*shown, *rest] or ["no remotes"], details={"remotes": names})


async def add_remote(
    repository: OpenRepository, settings: RemoteSettings, access: RemoteAccess, *, name: str, url: str
) -> TextResult:
    """Add a remote. Nothing is fetched.

    Raises:
        AlreadyExists: there is one of this name. InvalidArguments: the name or the URL is not accepted. DeniedRemote:
            the URL is a path that the policy does not name.
    """
    if checked_name(name) in settings.remotes:
        raise AlreadyExists(f"remote {name}: exists; git_remote action='set-url' changes its URL")
    address = _acceptable(access, url)
    await repository.output("remote", "add", "--", name, address.text)
    lines = [
        f"added remote {name}: {address.text} ({access.state(address)})",
        f"Undo: git_remote action='remove' name={name!r}",
    ]
    return answer(repository.checkout, map(single_line, lines), details={"remote": name, "url": address.text})


async def rename_remote(repository: OpenRepository, settings: RemoteSettings, *, name: str, to: str) -> TextResult:
    """Rename a remote with its tracking branches, and the upstreams that name it.

    Raises:
        NotFound: there is none. AlreadyExists: the new name is taken.
    """
    _existing(settings, name)
    if checked_name(to) in settings.remotes:
        raise AlreadyExists(f"remote {to}: exists; choose another name")
    await repository.output("remote", "rename", "--no-progress", "--", name, to)
    lines = [f"renamed remote {name} to {to}", f"Undo: git_remote action='rename' name={to!r} new_name={name!r}"]
    return answer(repository.checkout, map(single_line, lines), details={"remote": to})


async def remove_remote(repository: OpenRepository, settings: RemoteSettings, *, name: str) -> TextResult:
    """Remove a remote, its tracking branches, and the upstreams that name it.

    Raises:
        NotFound: there is none.
    """
    remote = _existing(settings, name)
    tracking = await local_references(repository, f"{TRACKING}{name}/")
    await repository.output("remote", "remove", "--", name)
    urls = [one.text for one in _urls(remote)]
    undo = f"Undo: git_remote action='add' name={name!r} url={urls[0] if urls else '...'!r}"
    undo += f", then git_fetch remote={name!r}"
    lines = [f"removed remote {name} and {len(tracking)} tracking branches", undo]
    ups = [branch for branch, (to, _) in settings.upstreams.items() if to == name]
    if ups:
        lines.append(f"branches that had an upstream there: {', '.join(ups[:20])}")
    return answer(repository.checkout, map(single_line, lines), details={"remote": name})


async def set_url(
    repository: OpenRepository, settings: RemoteSettings, access: RemoteAccess, *, name: str, url: str
) -> TextResult:
    """Give a remote one URL for both directions.

    Raises:
        NotFound: there is none. InvalidArguments, DeniedRemote: as `add_remote`.
    """
    remote = _existing(settings, name)
    address = _acceptable(access, url)
    before = [one.text for one in _urls(remote)]
    await repository.output("config", "--local", "--replace-all", f"remote.{name}.url", address.text)
    if remote.push_urls:
        await repository.output("config", "--local", "--unset-all", f"remote.{name}.pushurl")
    undo = f"Undo: git_remote action='set-url' name={name!r} url={before[0]!r}" if before else "Undo: by git itself"
    lines = [f"remote {name}: {address.text} ({access.state(address)})", undo]
    return answer(repository.checkout, map(single_line, lines), details={"remote": name, "url": address.text})


def _existing(settings: RemoteSettings, name: str) -> ConfiguredRemote:
    if name not in settings.remotes:
        there = ", ".join(sorted(settings.remotes)[:10]) or "none"
        raise NotFound(f"remote {name!r}: there is none (remotes: {there})")
    checked_name(name)
    return settings.remotes[name]


def _acceptable(access: RemoteAccess, text: str) -> RemoteUrl:
    """Return a URL that may be written into a configuration.

    A path is accepted only if the operator named it: the user's own git would run the hooks of what is there.
    """
    url = parsed_url(text)
    if url.scheme == "path" and access.state(url).startswith("not"):
        raise DeniedRemote(
            f"{single_line(url.text)}: a path can be a remote only if the operator allows it with\n"
            f'[[remote]]\nurl = "{url.text}"\nin the policy file',
            url=url.text,
        )
    if "@" in text.partition("://")[2].partition("/")[0] and url.scheme in ("https", "http"):
        raise InvalidArguments("url: names a user or a password; credentials are configured by the operator")
    return url


def _urls(remote: ConfiguredRemote) -> list[RemoteUrl]:
    urls = []
    for text in remote.urls:
        try:
            urls.append(parsed_url(text))
        except InvalidArguments:
            continue
    return urls


def _described(remote: ConfiguredRemote, access: RemoteAccess) -> list[str]:
    lines = []
    for what, texts in (("", remote.urls), ("push: ", remote.push_urls)):
        for text in texts:
            try:
                url = parsed_url(text)
            except InvalidArguments:  # not shown: it may have a password anywhere
                lines.append(f"{what}[a URL that is not supported]")
            else:
                lines.append(f"{what}{url.text} ({access.state(url)})")
    return lines
