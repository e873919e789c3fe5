"""The site of the documentation: `sphinx-build -W -n -c docs . DIRECTORY`, in the tree (docs/adr/0063).

The pages are those that are read in the repository, links between them included. Nothing is fetched, neither by the
build nor by a reader's browser; search is a file of the site.
"""

from sphinx.application import Sphinx

project = "coretools"
root_doc = "docs/index"
include_patterns = ["docs/**", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "packaging/README.md"]
exclude_patterns = ["README.md", "**/node_modules", ".*", "build"]
extensions = ["myst_parser"]
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]  # TOML with `...`, Mermaid: shown plain
smartquotes = False  # examples are copied: "x" and --option as they are
html_theme = "furo"
html_title = "coretools"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_extra_path = ["site"]
html_theme_options = {"footer_icons": []}


def add_contents(_: Sphinx, page: str, source: list[str]) -> None:
    """Give the index of a folder the other pages of it as its contents; in the repository it only has its links.

    Decisions are in no contents, but for their index: the contents are on every page, and with 60 more would be half of
    the time of the build.
    """
    if page.startswith("docs/adr/0"):
        source[0] = f"---\norphan: true\n---\n\n{source[0]}"
    elif page.startswith("docs/") and page.endswith("/README") and page != "docs/adr/README":
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n*\n```\n"


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_contents)
