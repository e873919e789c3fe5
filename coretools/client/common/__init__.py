"""What every part of the client uses: errors, arguments, and private files of state."""
