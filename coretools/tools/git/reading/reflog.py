"""Where HEAD or a branch has been."""

import re

from coretools.errors import NotFound
from coretools.roots import directory_access
from coretools.roots.git_credentials import without_users
from coretools.tools.answer_budget import cut_line, fitting
from coretools.tools.git.repository.git_directory import unusable
from coretools.tools.git.repository.open_repository import OpenRepository, check_revision
from coretools.tools.git.repository.porcelain import as_text, read_records, single_line
from coretools.tools.git.repository.results import TextResult, answer

_REFLOG = (
    "log",
    "--walk-reflogs",
    "-z",
    "--format=tformat:%H%x00%gd%x00%gs",
    "--date=iso-strict",
    "--no-show-signature",
)
_DATE = re.compile(r"@\{(.*)\}")


async def reflog(repository: OpenRepository, *, branch: str, limit: int, skip: int) -> TextResult:
    """Return where HEAD or a branch was, newest first, with the call that goes back.

    Raises:
        NotFound: no such branch, or it has no reflog.
    """
    check_revision(branch)
    name = "HEAD" if branch == "HEAD" else f"refs/heads/{branch}"
    _refuse_links(repository, f"logs/{name}")
    if not (await repository.run("reflog", "exists", name)).ok:
        raise NotFound(f"{branch}: has no reflog; git_branches lists branches")
    words = (*_REFLOG, f"--max-count={limit + 1}", f"--skip={skip}", name, "--")
    records = [[as_text(field) for field in one] for one in read_records(await repository.output(*words), 3)]
    lines = []
    for number, (commit, place, text) in enumerate(records[:limit], skip):
        date = _DATE.search(place)
        # `git pull URL` writes the URL into the reflog, with its credential.
        shown_text = without_users(text)
        lines.append(single_line(f"{branch}@{{{number}}} {commit[:10]} {date[1] if date else ''} {shown_text}"))
    shown = fitting(map(cut_line, lines), repository.git.answer_bytes)
    more = [f"[more entries; go on with skip={skip + len(shown)}]"] if len(records) > len(shown) else []
    if shown:
        example = f"{branch}@{{{max(skip, 1)}}}"  # entry 0 is where the branch is now
        more.append(
            f"[to go back: git_reset revision={example!r} mode='keep', or git_branch action='create' start={example!r}]"
        )
    return answer(repository.checkout, [*shown, *more] or ["no entries"], details={"entries": len(shown)})


def _refuse_links(repository: OpenRepository, path: str) -> None:
    """Refuse a reflog that is reached through a link: it may lead out of the roots.

    Raises:
        GitRefused: names it.
    """
    handle = repository.checkout.git_handle if path == "logs/HEAD" else repository.checkout.common_handle
    names = path.split("/")
    for count in range(1, len(names) + 1):
        part = "/".join(names[:count])
        if directory_access.entry_kind(handle, part) == "link":
            roots = repository.roots.for_git
            shown = roots.display_path(roots.place(repository.checkout.common_path))
            raise unusable(f"{shown}/{part}", "is a link")
