"""Upstream bugs as data: what they say, in which versions, where they are reported, what to do."""
