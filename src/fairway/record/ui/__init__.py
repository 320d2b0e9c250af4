"""Live pages of the records in a folder, served on this machine."""
