"""A record as a page that can be sent to a colleague."""
