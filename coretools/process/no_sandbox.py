"""Commands without a sandbox: plain children, which a runner without a pool starts."""

from coretools.confinement.command_confinement import ConfinementStatus
from coretools.confinement.protected_paths import ControlFiles, HiddenPath
from coretools.confinement.toolchains import FoundToolchain
from coretools.roots.root import Root


class NoSandbox:
    """Stands for the `SandboxPool` that is not there: nothing is confined, hidden or kept."""

    tier = None
    has_fork_server = False
    scratch = ""
    unrecorded = "they run without a sandbox"
    hidden: tuple[HiddenPath, ...] = ()
    toolchains: tuple[FoundToolchain, ...] = ()

    async def prepare(self) -> ConfinementStatus:
        """Return the status of commands without confinement, which is permitted."""
        missing = {"landlock": "commands run without a sandbox"}
        return ConfinementStatus("none", missing, is_permitted=True, is_whole=True)

    def require(self) -> None:
        """Permit every command."""

    def variables(self, _: Root | None = None) -> dict[str, str]:
        """Return nothing."""
        return {}

    async def control_files(self) -> ControlFiles:
        """Return nothing: what a command changes is not looked for."""
        return {}

    async def close(self) -> None:
        """Do nothing."""
