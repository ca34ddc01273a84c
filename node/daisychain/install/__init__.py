"""What an installation decides, from what the installers found: pure, but for the look around in `nearby`."""
