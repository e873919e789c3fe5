"""Shell lines: a bash line as the simple commands that it may start. Pure; nothing here knows the operator's rules."""
