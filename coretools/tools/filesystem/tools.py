"""All file tools, in the order in which they are listed.

Each tool is a few lines between its arguments and `roots`, the only way to a file. The pure parts are in modules of
their own: selecting lines, applying edits, formatting a diff.
"""

from collections.abc import Callable
from typing import Any

from coretools.tools.filesystem.changing_tools import ChangingTools
from coretools.tools.filesystem.editing_tools import EditingTools
from coretools.tools.filesystem.multi_file_tools import MultiFileTools
from coretools.tools.filesystem.reading_tools import ReadingTools


class FilesystemTools(ReadingTools, EditingTools, MultiFileTools, ChangingTools):
    """Every file tool as a method, for callers in Python."""

    def in_order(self) -> tuple[Callable[..., Any], ...]:
        """Return the tools and the resource, in the order in which they are listed."""
        return (
            *(self.file, self.read_file, self.read_files, self.write_file, self.edit_file, self.edit_files),
            self.apply_patch,
            *(self.list_directory, self.directory_tree),
            *(self.delete_file, self.delete_directory, self.create_directory),
            *(self.file_exists, self.directory_exists, self.move_path, self.copy_path),
        )
