"""The speed of files compared with other engines, with honest confidence intervals."""
