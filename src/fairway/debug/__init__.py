"""Find out what is wrong: minimal reproducers, wrong nodes, the machine, and other versions."""
