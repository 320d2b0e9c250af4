"""A folder of records as live pages, for the person at this machine alone."""
