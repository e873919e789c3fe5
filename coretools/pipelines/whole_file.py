"""Write a file so that a reader never finds half of one."""

import os
import stat

from coretools.errors import InputOutput
from coretools.regular_file import replacing, write_all


def write_whole(path: str, text: str, mode: int = 0o666) -> None:
    """Replace a file, with permissions `mode` less the umask; write to a pipe or device, such as /dev/stdout, as it is.

    Raises:
        InputOutput: it can't be written.
    """
    data = (text if text.endswith("\n") else text + "\n").encode("utf-8", "replace")
    try:
        # /dev/stdout may be a file that a shell opened: it must not be replaced either.
        is_stream = os.path.abspath(path).startswith(("/dev/", "/proc/"))
        if is_stream or (os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode)):
            with open(path, "ab") as device:
                device.write(data)
            return
        with replacing(os.path.realpath(path), mode=mode) as file:
            write_all(file, data)
    except OSError as error:
        raise InputOutput(f"{path}: cannot be written: {error.strerror}") from error
