"""Report pages of records."""
