"""What every part of the device's module stands on: the first use, device arguments, the log, properties."""
