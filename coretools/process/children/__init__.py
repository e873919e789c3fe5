"""One child process: spawn, streams, termination, reaper."""
