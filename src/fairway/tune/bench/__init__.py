"""How fast a file is, beside what else could run it, with intervals that can be believed."""
