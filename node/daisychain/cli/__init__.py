"""The daisychain command: its sub-commands, what they print, their exit codes."""
