"""The record of a file: its schema, reading, writing, delivery, progress, and pages made from it."""
