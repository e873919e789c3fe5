"""Named sets of hosts: what the tools of an ecosystem contact with their default settings."""

from collections.abc import Mapping
from types import MappingProxyType

_GITHUB_DOWNLOADS = ("github.com", "objects.githubusercontent.com", "release-assets.githubusercontent.com")

HOST_SETS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "pypi": ("pypi.org", "files.pythonhosted.org"),
        "npm": ("registry.npmjs.org", "registry.yarnpkg.com"),
        # Headers for native modules (node-gyp), and the releases that nvm, fnm and corepack download.
        "node": ("nodejs.org",),
        "crates": ("index.crates.io", "static.crates.io", "crates.io"),
        "rust": ("static.rust-lang.org",),
        # Toolchains come from the module proxy too (go.dev/doc/toolchain); for large modules it redirects to storage.
        "go": ("proxy.golang.org", "sum.golang.org", "storage.googleapis.com"),
        "maven": ("repo.maven.apache.org", "repo1.maven.org"),
        "github": (
            *_GITHUB_DOWNLOADS,
            *("api.github.com", "codeload.github.com", "raw.githubusercontent.com", "uploads.github.com"),
            *("github-cloud.githubusercontent.com", "media.githubusercontent.com"),  # LFS
        ),
        # The wrapper is redirected from services.gradle.org to a release on GitHub; mavenCentral() is Maven's host.
        "gradle": (
            *("services.gradle.org", "downloads.gradle.org", "plugins.gradle.org", "plugins-artifacts.gradle.org"),
            *("repo.maven.apache.org", *_GITHUB_DOWNLOADS),
        ),
        "gitlab": ("gitlab.com", "registry.gitlab.com"),
        "rubygems": ("rubygems.org", "index.rubygems.org"),
        "nuget": ("api.nuget.org", "www.nuget.org"),
        "packagist": ("packagist.org", "repo.packagist.org"),
        "debian": ("deb.debian.org", "security.debian.org"),
        "ubuntu": ("archive.ubuntu.com", "security.ubuntu.com", "ports.ubuntu.com"),
        "alpine": ("dl-cdn.alpinelinux.org",),
    }
)
"""Hosts by name of the set. Ports are 80 and 443. A set that borrows hosts of another one follows it."""


def set_with(name: str) -> str | None:
    """The first set that contains a host; None if no set does."""
    return next((known for known, hosts in HOST_SETS.items() if name in hosts), None)
