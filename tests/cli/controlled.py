"""Run a module at a terminal: `python -m tests.cli.controlled MODULE WORDS...`.

Standard input becomes the controlling terminal of a new session, so that Ctrl-C is a signal.
"""

import fcntl
import os
import runpy
import sys
import termios

if __name__ == "__main__":
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
